//! Statements as people write them, and as they are sent.
//!
//! What is longer than three lines is in a file below `sql/`, in the folder of its module. There a name in braces
//! stands for a piece of SQL: for one that several statements share, which is in [`PIECES`], or for one that the
//! statement defines for itself, in a line such as `-- {key} = id`. What a statement defines also counts within the
//! pieces that it uses, before what these are otherwise.
//!
//! It is worked out once for each connection, when a statement is sent for the first time.

use crate::record_row::RECORD_COLUMNS;

/// The text of a file below `sql/`.
macro_rules! sql_file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $name, ".sql"))
    };
}
pub(crate) use sql_file;

/// What names in braces stand for.
const PIECES: &[(&str, &str)] = &[
    ("spec_columns", sql_file!("task_row/spec_columns")),
    ("live_columns", sql_file!("task_row/live_columns")),
    ("done_columns", sql_file!("task_row/done_columns")),
    ("payload", "s.payload"),
    ("result", "d.result"),
    ("record_columns", RECORD_COLUMNS),
    ("states_of", sql_file!("read/states_of")),
    ("free_heads", sql_file!("claim/free_heads")),
    ("heads_of_lanes", sql_file!("claim/heads_of_lanes")),
    ("heads_above", sql_file!("claim/heads_above")),
    ("as_assumed", sql_file!("claims/as_assumed")),
    ("removal", sql_file!("compact/removal")),
    ("busy", sql_file!("stuck/busy")),
];

/// A statement as it is sent: in one line, without comments, and with what its names stand for.
pub(crate) fn sent(text: &str) -> String {
    let own: Vec<_> = text.lines().filter_map(definition).collect();
    let mut sent = String::new();
    fill(&bare(text), &own, &mut sent);
    sent
}

/// What a line of comment says that a name stands for.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, piece) = line.trim().strip_prefix("-- {")?.split_once("} =")?;
    Some((name, piece.trim()))
}

/// The lines of a text that are no comments, as one.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("--") {
            continue;
        }
        if !bare.is_empty() && !bare.ends_with('(') && !line.starts_with(')') {
            bare.push(' ');
        }
        bare.push_str(line);
    }
    bare
}

/// Adds a text with what its names stand for. Braces around anything else are left as they are.
fn fill(text: &str, own: &[(&str, &str)], sent: &mut String) {
    let mut rest = text;
    while let Some((before, braced)) = rest.split_once('{') {
        sent.push_str(before);
        let named = braced.split_once('}').and_then(|(name, after)| {
            let is_it = |(known, _): &&(&str, &str)| *known == name;
            let (_, piece) = own.iter().chain(PIECES).find(is_it)?;
            Some((piece, after))
        });
        rest = match named {
            Some((piece, after)) => {
                fill(&bare(piece), own, sent);
                after
            }
            None => {
                sent.push('{');
                braced
            }
        };
    }
    sent.push_str(rest);
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::plans;

    #[test]
    fn a_statement_is_sent_without_what_is_written_for_people() {
        let text = "-- Purpose: none.\n-- {key} = id\nSELECT {key}, '{}', '{odd}', '{1,{2}'\n\
                    FROM (\n    -- Why.\n    SELECT 1\n) a\nWHERE {key} = $1\n";
        assert_eq!(
            sent(text),
            "SELECT id, '{}', '{odd}', '{1,{2}' FROM (SELECT 1) a WHERE id = $1"
        );
        assert_eq!(sent(&sent(text)), sent(text));
    }

    #[test]
    fn a_piece_is_as_the_statement_says() {
        let columns = sent("SELECT {live_columns} FROM a");
        assert!(columns.starts_with("SELECT s.id, ") && columns.contains(", s.payload, "));
        let bare = sent("-- {payload} = ''::bytea\nSELECT {live_columns} FROM a");
        assert_eq!(bare, columns.replace("s.payload", "''::bytea"));
    }

    /// The files of statements and of pieces of them, by their names.
    fn files() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        let (mut folders, mut files) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path: PathBuf = entry.expect("an entry").path();
                match path.is_dir() {
                    true if path.ends_with("migrations") => {}
                    true => folders.push(path),
                    false => {
                        let text = std::fs::read_to_string(&path).expect("a file");
                        let name = path.strip_prefix(&root).expect("below it");
                        files.push((name.display().to_string(), text));
                    }
                }
            }
        }
        assert!(files.len() > 50, "{files:?}");
        files
    }

    #[test]
    fn every_file_says_what_it_is_for() {
        for (name, text) in files() {
            assert!(text.starts_with("-- Purpose: "), "{name}");
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
            for line in text.lines().filter(|line| !line.starts_with("--")) {
                let (sql, _) = line.split_once("--").unwrap_or((line, ""));
                assert!(sql.trim().is_empty() || sql == line, "{name}: {line}");
            }
        }
    }

    #[test]
    fn every_name_in_a_statement_is_known() {
        let pieces: BTreeSet<_> = PIECES.iter().map(|(_, piece)| *piece).collect();
        for (name, text) in files() {
            if !pieces.contains(text.as_str()) {
                assert!(!sent(&text).contains(['{', '}']), "{name}");
            }
        }
        for (name, sql, _) in plans::cases() {
            assert!(!sent(sql.text).contains(['{', '}']), "{name}");
        }
    }

    /// A piece that nobody uses would stay for ever, and what a statement defines in vain is a mistake.
    #[test]
    fn every_piece_and_every_definition_is_used() {
        let texts: Vec<_> = files().into_iter().map(|(_, text)| text).collect();
        let cases: Vec<_> = plans::cases()
            .into_iter()
            .map(|(_, sql, _)| sql.text.into())
            .collect();
        let all: Vec<String> = texts.iter().chain(&cases).cloned().collect();
        let uses = |text: &String, name: &str| bare(text).contains(&format!("{{{name}}}"));
        for (name, _) in PIECES {
            assert!(all.iter().any(|text| uses(text, name)), "{{{name}}}");
        }
        for text in &all {
            for (name, piece) in text.lines().filter_map(definition) {
                let line = format!("-- {{{name}}} = {piece}");
                let without = text.replace(line.trim_end(), "--");
                assert_ne!(sent(text), sent(&without), "{{{name}}} of {text}");
            }
        }
    }
}
