//! The map in `main.rs` names tests that there are: one that is given another name is not lost from it.

use std::path::Path;

const MAP: &str = include_str!("main.rs");

/// The source of all tests in this folder and those in it.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|of| of == "rs") {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}

#[test]
fn every_test_that_the_map_names_is_there() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let rows = MAP.lines().filter(|line| line.starts_with("//! | "));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let is_name = |text: &&str| text.contains('_') && !text.contains(['.', '/', ' ']);
    let names: Vec<&str> = quoted.filter(is_name).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        let test = match name.strip_suffix('…') {
            Some(begins) => format!("fn {begins}"),
            None => format!("fn {name}()"),
        };
        assert!(sources.contains(&test), "there is no {name}");
    }
    let files = MAP.lines().filter(|line| line.starts_with("//! "));
    let files = files.flat_map(|line| line.split('`').skip(1).step_by(2));
    for file in files.filter(|text| text.ends_with(".rs") && text.contains('/')) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let found =
            ["", "..", "../../store-postgres/tests"].map(|folder| tests.join(folder).join(file));
        assert!(found.iter().any(|path| path.exists()), "there is no {file}");
    }
}
