//! What is kept of long texts, and what lines say of steps.

use plimsoll_core::log::cut_middle;
use proptest::prelude::*;

#[test]
fn a_text_that_fits_is_kept_as_it_is() {
    for max in [3, 4, 100] {
        assert_eq!(cut_middle("abc", max), "abc");
    }
}

#[test]
fn a_long_text_keeps_its_beginning_and_its_end_and_says_how_much_is_missing() {
    let text = format!("begin {} end", "x".repeat(10_000));
    let cut = cut_middle(&text, 1_000);
    assert!(
        cut.starts_with("begin x") && cut.ends_with("x end"),
        "{cut}"
    );
    let (head, rest) = cut.split_once("\n[").unwrap();
    let (missing, tail) = rest.split_once(" bytes left out]\n").unwrap();
    let missing: usize = missing.parse().unwrap();
    assert_eq!(head.len() + missing + tail.len(), text.len());
    assert!(cut.len() > 990);
}

proptest! {
    #[test]
    fn a_cut_text_never_exceeds_its_limit(text in "[a-zä→🚢\n]{0,300}", max in 0_usize..200) {
        let cut = cut_middle(&text, max);
        prop_assert!(cut.len() <= max);
        prop_assert!(text.len() > max || cut == text);
    }
}
