//! Where a failed assertion of the test kit points. Alone in its program, because the panic hook that
//! it sets belongs to all threads.

// A failed assertion is how a test fails.
#![allow(clippy::unwrap_used)]

use std::panic::{Location, PanicHookInfo};
use std::sync::{Arc, Mutex};

use plimsoll_engine::testing::Kit;

#[test]
fn a_failed_assertion_points_at_the_line_of_the_test() {
    let seen = Arc::new(Mutex::new(None));
    let keep = seen.clone();
    let file = Location::caller().file();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let here = info.location().filter(|at| at.file() == file);
        if let Some(at) = here {
            keep.lock().unwrap().get_or_insert(at.line());
        }
        before(info);
    }));
    let asserted = std::panic::catch_unwind(|| Kit::new().assert_submitted("q", "k"));
    let line = line!() - 1;
    assert!(asserted.is_err());
    assert_eq!(*seen.lock().unwrap(), Some(line));
}
