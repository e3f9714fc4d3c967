//! Pictures of jobs, as people see them.

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn state(partition: u32, tag: &str, status: i32, message: &str) -> Arc<State> {
    let tag = Some(name(tag));
    Arc::new(State {
        status,
        message: message.into(),
        version: 1,
        ..State::not_started(name("import"), partition, tag)
    })
}

/// A picture of these states, the lowest of which is this one.
fn picture(partitions: u32, states: Vec<Arc<State>>, tags: &[&str], lowest: usize) -> Picture {
    let progress = |tag: &&str| {
        let of_tag = || states.iter().filter(|state| state.tag == Some(name(tag)));
        let count = |standing| {
            let found = of_tag().filter(|state| Standing::of(state.status) == standing);
            u32::try_from(found.count()).expect("a few")
        };
        let (running, finished) = (count(Standing::Running), count(Standing::Finished));
        let failed = count(Standing::Failed);
        Progress {
            tag: name(tag),
            not_started: partitions - running - finished - failed,
            running,
            finished,
            failed,
        }
    };
    Picture {
        partitions,
        lowest: (*states[lowest]).clone(),
        tags: tags.iter().map(progress).collect(),
        states: Some(states),
    }
}

fn drawn(picture: &Picture, scope: &Scope, width: usize, height: usize) -> String {
    let size = Size { width, height };
    let lines = frame(&name("import"), scope, picture, size, &Screen::plain(None));
    assert!(lines.len() <= height, "{lines:#?}");
    for line in &lines {
        assert!(console::measure_text_width(line) <= width, "{line}");
    }
    lines.join("\n") + "\n"
}

fn four() -> Picture {
    let states = vec![
        state(0, "export", 40, "40 of 100 files"),
        state(0, "ingest", FINISHED, "⚫ Finished"),
        state(1, "export", -1, "🔴 no route\nto host"),
        state(1, "ingest", FINISHED, ""),
        state(2, "ingest", FINISHED, ""),
    ];
    picture(4, states, &["export", "ingest"], 2)
}

#[test]
fn a_few_partitions_have_a_line_each() {
    let expected = "\
import  error  4 partitions
  export  ╌╌╌╌╌×××××··········  1 failed, 1 running, 2 not started
  ingest  ━━━━━━━━━━━━━━━·····  3 finished, 1 not started

     0  ╌━  running 40  export  40 of 100 files
     1  ×━  error  export  🔴 no route to host
     2  ·━  not started  export
     3  ··  not started
  last  partition 1 at export: error  🔴 no route to host
";
    assert_eq!(drawn(&four(), &Scope::all(), 79, 23), expected);
}

#[test]
fn one_partition_has_a_line_for_each_tag() {
    let mut one = four();
    one.tags.clear();
    one.states = one.states.map(|states| states[..2].to_vec());
    one.lowest = (*one.states.as_ref().expect("states")[0]).clone();
    let expected = "\
import  running 40  4 partitions, only partition 0

  running 40  export  40 of 100 files
  finished  ingest  ⚫ Finished
  last  partition 0 at export: running 40  40 of 100 files
";
    assert_eq!(drawn(&one, &Scope::all().partition(0), 79, 23), expected);
}

#[test]
fn many_partitions_share_marks_and_only_some_errors_are_told() {
    let status = |partition: u32| match partition {
        1_000..1_008 => -1,
        ..1_500 => FINISHED,
        _ => 7,
    };
    let message = |partition: u32| format!("files of {partition}");
    let states = (0..1_900).map(|p| state(p, "ingest", status(p), &message(p)));
    let many = picture(2_000, states.collect(), &["ingest"], 1_000);
    let shown = drawn(&many, &Scope::all(), 62, 23);
    let row = |mark: &str, count: usize| mark.repeat(count);
    let expected = [
        "import  error  2,000 partitions".into(),
        // What counts there is no room for.
        format!(
            "  ingest  {}{}×·  8 failed, 1,492 finished, 400…",
            row("━", 14),
            row("╌", 4)
        ),
        String::new(),
    ];
    assert_eq!(shown.lines().take(3).collect::<Vec<_>>(), expected);
    assert!(
        shown.contains("4 partitions a mark: ━ finished  ╌ running"),
        "{shown}"
    );
    assert_eq!(
        shown.matches("files of 10").count(),
        ERRORS_MAX + 1,
        "{shown}"
    );
    assert!(shown.contains("\n  and 3 more\n"), "{shown}");
    let marks: String = shown.lines().skip(3).take(9).map(str::trim).collect();
    let marks: Vec<char> = marks.chars().collect();
    // Of 500 marks: 375 finished but for two that failed, 100 running, 25 of whom nothing was heard.
    assert_eq!(marks.len(), 500);
    assert_eq!(
        (marks[249], marks[250], marks[251], marks[252]),
        ('━', '×', '×', '━')
    );
    assert_eq!(
        (marks[374], marks[375], marks[474], marks[475]),
        ('━', '╌', '╌', '·')
    );
}

#[test]
fn nothing_is_drawn_outside_of_a_small_terminal() {
    for height in 1..12 {
        for width in [1, 2, 7, 20] {
            drawn(&four(), &Scope::all(), width, height);
        }
    }
}

#[test]
fn what_is_finished_has_nobody_who_is_last() {
    let states = vec![state(0, "ingest", FINISHED, "")];
    let done = picture(1, states, &["ingest"], 0);
    let shown = drawn(&done, &Scope::all(), 79, 23);
    assert!(!shown.contains("last"), "{shown}");
}
