//! Lifecycles: the whole product of the media pipeline's states, and which definitions are refused.

use plimsoll_core::lifecycle::{Lifecycle, Phase, Stage};
use plimsoll_core::limits::{LIFECYCLE_BYTES_MAX, LIFECYCLE_MOVES_MAX, LIFECYCLE_STAGES_MAX};

use crate::{assert_whole, cells, name};

const STAGES: [&str; 5] = [
    "validating",
    "planning",
    "downloading_inputs",
    "processing",
    "uploading_outputs",
];

/// From each state to each: `yes` if that is one move.
const TABLE: &str = "
                   pending validating planning downloading_inputs processing uploading_outputs completed failed cancelled
pending            .       yes        .        .                  .          .                 .         .      yes
validating         .       .          yes      .                  .          .                 .         yes    yes
planning           .       .          .        yes                .          .                 .         yes    yes
downloading_inputs .       .          .        .                  yes        .                 .         yes    yes
processing         .       .          .        .                  .          yes               .         yes    yes
uploading_outputs  .       .          .        .                  .          .                 yes       yes    yes
completed          .       .          .        .                  .          .                 .         .      .
failed             yes     .          .        .                  .          .                 .         .      .
cancelled          .       .          .        .                  .          .                 .         .      .
";

fn phase(text: &str) -> Phase {
    match text {
        "pending" => Phase::Pending,
        "completed" => Phase::Completed,
        "failed" => Phase::Failed,
        "cancelled" => Phase::Cancelled,
        stage => Phase::Stage(name(stage)),
    }
}

#[test]
fn the_media_pipeline_moves_as_its_table_says() {
    let states: Vec<&str> = [
        &["pending"],
        &STAGES[..],
        &["completed", "failed", "cancelled"],
    ]
    .concat();
    assert_whole(TABLE, &states, &states);
    let media = Lifecycle::row(STAGES).unwrap();
    for (from, to, cell) in cells(TABLE) {
        let allowed = media.allows(&phase(from), &phase(to));
        assert_eq!(allowed, cell == "yes", "from {from} to {to}");
        assert_eq!(phase(from).to_string(), from);
    }
    assert_eq!(media.allowed(&phase("dreaming")), []);
}

#[test]
fn a_lifecycle_may_branch_and_go_in_circles() {
    let review = Lifecycle::new([
        Stage::new("drafting").unwrap().to("checking").unwrap(),
        Stage::new("checking")
            .unwrap()
            .to("drafting")
            .unwrap()
            .to("undoing")
            .unwrap()
            .completes(),
        // From here it can only fail.
        Stage::new("undoing").unwrap(),
    ])
    .unwrap();
    assert!(review.allows(&phase("checking"), &phase("drafting")));
    assert!(review.allows(&phase("undoing"), &phase("failed")));
    assert!(!review.allows(&phase("undoing"), &phase("completed")));
    assert!(review.leads(&name("drafting"), &name("undoing")));
    assert!(review.leads(&name("drafting"), &name("drafting")));
    assert!(!review.leads(&name("undoing"), &name("drafting")));
}

fn stage(text: &str, next: &[&str], completes: bool) -> Stage {
    Stage {
        name: name(text),
        next: next.iter().map(|text| name(text)).collect(),
        completes,
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_limit() {
    let numbered = |n: usize| format!("s{n}");
    let many: Vec<Stage> = (0..=LIFECYCLE_STAGES_MAX)
        .map(|n| stage(&numbered(n), &[], true))
        .collect();
    let all: Vec<String> = (0..17).map(numbered).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let crossing: Vec<Stage> = (all.iter()).map(|text| stage(text, &all, true)).collect();
    let long = |n: usize| format!("{n:0>128}");
    let lengthy: Vec<Stage> = (0..64)
        .map(|n| stage(&long(n), &[&long((n + 1) % 64)], true))
        .collect();
    for (stages, says) in [
        (vec![], "lifecycle.stages: must not be empty".to_owned()),
        (
            many,
            format!("lifecycle.stages: 65 given, at most {LIFECYCLE_STAGES_MAX} are allowed"),
        ),
        (
            crossing,
            format!("lifecycle.moves: 289 given, at most {LIFECYCLE_MOVES_MAX} are allowed"),
        ),
        (
            lengthy,
            format!("lifecycle.stages: 16512 bytes, at most {LIFECYCLE_BYTES_MAX} are allowed"),
        ),
        (
            vec![stage("a", &["b"], false)],
            "lifecycle.stages.a.next: there is no stage b".into(),
        ),
        (
            vec![stage("a", &["b", "b"], true), stage("b", &[], true)],
            "lifecycle.stages.a.next: names b twice".into(),
        ),
        (
            vec![stage("a", &[], true), stage("a", &[], true)],
            "lifecycle.stages: names a twice".into(),
        ),
        (
            vec![stage("a", &[], true), stage("b", &["a"], true)],
            "lifecycle.stages: no move leads to stage b".into(),
        ),
        (
            vec![stage("a", &["a"], false)],
            "lifecycle.stages: is missing: a task must be able to complete in one of the stages"
                .into(),
        ),
        (
            vec![stage("pending", &[], true)],
            "lifecycle.stages: pending is the name of a status".into(),
        ),
    ] {
        let json = serde_json::to_string(&stages).unwrap();
        assert_eq!(Lifecycle::new(stages).unwrap_err().to_string(), says);
        // What is read from somewhere is checked the same way.
        let read: Result<Lifecycle, _> = serde_json::from_str(&json);
        assert!(read.unwrap_err().to_string().contains(&says), "{says}");
    }
    assert!(Stage::new("").is_err());
}

#[test]
fn a_lifecycle_reads_as_the_list_of_its_stages() {
    let two = Lifecycle::row(["one", "two"]).unwrap();
    let json = serde_json::to_value(&two).unwrap();
    let expected = serde_json::json!([
        { "name": "one", "next": ["two"], "completes": false },
        { "name": "two", "next": [], "completes": true },
    ]);
    assert_eq!(json, expected);
    let read: Lifecycle = serde_json::from_value(json).unwrap();
    assert_eq!(read, two);
}
