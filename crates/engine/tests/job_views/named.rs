//! The map in `main.rs` names tests that there are, each in the file that is named before it: what is given another name
//! or goes is not lost from it.

use std::path::Path;

const MAP: &str = include_str!("main.rs");
/// Where a file that it names may be.
const FOLDERS: [&str; 3] = ["tests/job_views", "tests", "../store-postgres/tests"];

fn source(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = FOLDERS.map(|folder| root.join(folder).join(file));
    let found = files
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok());
    found.unwrap_or_else(|| panic!("there is no {file}"))
}

/// What is between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_the_map_names_is_in_its_file() {
    let rows = MAP
        .lines()
        .filter(|line| line.starts_with("//! | "))
        .skip(1);
    let mut names = 0;
    for row in rows {
        let before = names;
        let mut file = None;
        for text in quoted(row).filter(|text| !text.contains(' ')) {
            if text.ends_with(".rs") {
                file = Some((text, source(text)));
            } else if text.contains('_') {
                let (file, source) = file.as_ref().unwrap_or_else(|| panic!("where is {text}?"));
                let test = match text.strip_suffix('…') {
                    Some(begins) => format!("fn {begins}"),
                    None => format!("fn {text}()"),
                };
                assert!(source.contains(&test), "there is no {text} in {file}");
                names += 1;
            }
        }
        assert!(names > before, "no test for {row}");
    }
    assert!(names > 10, "{names}");
}

#[test]
fn every_file_beside_the_map_is_there() {
    let text = MAP
        .lines()
        .filter(|line| line.starts_with("//! ") && !line.contains('|'));
    for file in text.flat_map(quoted).filter(|text| text.ends_with(".rs")) {
        source(file);
    }
}
