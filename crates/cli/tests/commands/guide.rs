//! What the guides promise, held against what is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll::log::Level;
use plimsoll::task::Progress;
use serde_json::Value;

use crate::world::World;

type Words = BTreeSet<String>;

/// The words of the last column of this row of the guide; options are none of them.
#[track_caller]
fn fields(begin: &str) -> Words {
    let guide = include_str!("../../../../docs/cli.md");
    let mut rows = guide.lines().filter(|line| line.starts_with(begin));
    let row = rows.next().unwrap_or_else(|| panic!("a row: {begin}"));
    let names = row.rsplit('|').nth(1).unwrap_or_default().split('`');
    let names = names.skip(1).step_by(2).map(String::from);
    names.filter(|name| !name.starts_with('-')).collect()
}

/// The names of the fields of all these.
fn keys<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Words {
    let objects = objects.into_iter();
    let fields = objects.flat_map(|object| object.as_object().expect("an object").keys());
    fields.cloned().collect()
}

#[test]
fn every_field_of_a_task_is_named() {
    let world = World::new();
    let failed = world.submit(["mail", "send"], "a", &[]);
    world.work(&failed, async |held| held.fail_fatal("no route").await);
    let held = world.submit(["mail", "send"], "b", &[]);
    let progress = Progress::default();
    world.work(&held, async |held| held.progress(progress).await);
    let (held, failed) = (world.task(&held), world.task(&failed));
    assert_eq!(keys([&held]), fields("| `task list`, `show`, `wait` |"));
    assert_eq!(keys([&held["retry"]]), fields("| its `retry` |"));
    assert_eq!(keys([&held["progress"]]), fields("| its `progress` |"));
    assert_eq!(keys([&held["lease"]]), fields("| its `lease` |"));
    assert_eq!(keys([&failed["errors"][0]]), fields("| its `errors` |"));
}

#[test]
fn every_field_of_logs_steps_and_workers_is_named() {
    let world = World::new();
    world.submit(["q", "k"], "x", &["--key", "one"]);
    world
        .run(&["work", "--queue", "q", "--until-empty", "--", "true"])
        .ended(0);
    let objects = |words: &[&str]| world.run(&[words, &["--json"]].concat()).ended(0).objects();
    let lines = objects(&["task", "logs", "key:one"]);
    assert_eq!(keys(&lines), fields("| `task logs` |"));
    let steps = objects(&["task", "steps", "key:one"]);
    assert_eq!(keys(&steps), fields("| `task steps` |"));
    let step = lines.iter().find(|line| line["step"].is_object());
    assert_eq!(
        keys(step.map(|line| &line["step"])),
        fields("| its `step` |")
    );
    let workers = objects(&["worker", "list", "--all"]);
    assert_eq!(keys(&workers), fields("| `worker list` |"));
}

#[test]
fn every_field_of_a_retention_is_named() {
    let world = World::new();
    let set = ["retention", "set", "--jobs", "1d", "--json"];
    let set = world.run(&set).ended(0).object();
    assert_eq!(keys([&set]), fields("| `retention` |"));
}

#[test]
fn every_answer_to_a_submit_is_named() {
    let world = World::new();
    let submit = |payload| {
        let words = [
            "task", "submit", "q", "k", payload, "--key", "one", "--json",
        ];
        world.run(&words).ended(0).object()
    };
    let mut answers = ["x", "x", "y"].map(submit).to_vec();
    let id = answers[0]["id"].as_str().expect("an id").to_owned();
    world.work(&id, async |held| held.complete("").await);
    answers.push(submit("x"));
    let outcomes = answers
        .iter()
        .filter_map(|answer| answer["outcome"].as_str());
    let mut named: Words = outcomes.map(String::from).collect();
    named.extend(keys(&answers));
    assert_eq!(named, fields("| `task submit` |"));
    let lines = b"{\"payload\":1}\n{}\n";
    let words = ["task", "submit", "q", "k", "--lines", "-", "--json"];
    let answers = world.run_with(&words, lines).ended(2).objects();
    assert_eq!(keys(&answers), fields("| `task submit --lines` |"));
}

#[test]
fn every_answer_to_a_verb_is_named() {
    let world = World::new();
    let id = world.submit(["q", "k"], "x", &[]);
    world.submit(["q", "k"], "x", &[]);
    let run = |words: &[&str]| world.run(&[&["task", "cancel", "--json"], words].concat());
    let answers = run(&[&id, "key:nothing"]).ended(3).objects();
    let named = "| `task retry`, `cancel`, `delete` of named tasks |";
    assert_eq!(keys(&answers), fields(named));
    let answers = [&["--dry-run"][..], &["--yes"]]
        .map(|more| run(&[&["--queue", "q"], more].concat()).ended(0).object());
    assert_eq!(keys(&answers), fields("| of all that match |"));
}

#[test]
fn every_field_of_queues_and_locks_is_named() {
    let world = World::new();
    world.submit(["q", "k"], "x", &[]);
    let lanes = world.run(&["queue", "list", "--json"]).ended(0).object();
    let mut named = keys([&lanes]);
    named.extend(keys([&lanes["next"]]));
    assert_eq!(named, fields("| `queue list` |"));
    let queue = world.run(&["queue", "show", "q", "--json"]).ended(0);
    assert_eq!(keys([&queue.object()]), fields("| `queue show` |"));
    let lock = world.act(async |engine| {
        let guard = engine.locks().lock("nightly").try_acquire().await?;
        let lock = world.run(&["lock", "list", "--json"]).ended(0).object();
        guard.release().await?;
        Ok(lock)
    });
    assert_eq!(keys([&lock]), fields("| `lock list` |"));
}

#[test]
fn every_field_of_records_is_named() {
    let world = World::new();
    let object = |words: &[&str]| {
        let words = [&["record"], words, &["--json"]].concat();
        world.run(&words).ended(0).object()
    };
    let mut written = vec![object(&["put", "a", "n=1"])];
    written.push(object(&["touch", "a", "--persist"]));
    written.push(object(&["cas", "a", "n", "1", "2"]));
    let looked = object(&["cas", "a", "--when", "n=2"]);
    assert!(looked["revision"].is_null(), "{looked}");
    written.push(looked);
    for answer in &written {
        let mut named = fields("| `record put`, `touch`, `cas` |");
        assert!(named.remove("null") && named.remove("cas"));
        assert_eq!(keys([answer]), named);
    }
    for words in [&["get", "a"][..], &["set", "a", "n=2"], &["scan", "a"]] {
        let record = object(words);
        assert_eq!(keys([&record]), fields("| `record get`, `set`, `scan` |"));
        assert_eq!(keys([&record["fields"]["n"]]), Words::from(["text".into()]));
    }
    let field = object(&["get", "a", "--field", "n"]);
    assert_eq!(keys([&field]), fields("| `record get --field` |"));
    let watch = ["record", "watch", "a", "--count", "2", "--json"];
    for event in world.run(&watch).ended(0).objects() {
        assert_eq!(keys([&event]), fields("| `record watch` |"));
    }
    for verb in [&["declare", "a", "n"][..], &["list"], &["drop", "a", "n"]] {
        let mut named = fields("| `record index declare`, `drop`, `list` |");
        assert!(named.remove("null"));
        let index = object(&[&["index"], verb].concat());
        assert_eq!(keys([&index]), named);
        assert_eq!(index["ready"].is_null(), verb[0] == "drop");
    }
    assert_eq!(
        keys([&object(&["delete", "a"])]),
        fields("| `record delete` |")
    );
}

/// Its words, without times, which pass.
fn timeless(text: &str) -> Vec<&str> {
    let is_time = |word: &&str| {
        let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
        number.len() < word.len() && number.parse::<u64>().is_ok()
    };
    let words = text.split_whitespace();
    words.filter(|word| !is_time(word)).collect()
}

/// Every command that is shown, with what it says.
#[test]
fn the_tour_of_records_is_what_happens() {
    let guide = include_str!("../../../../docs/cli.md");
    let (_, records) = guide.split_once("## Records\n").expect("its section");
    let (_, tour) = records.split_once("```console\n$ ").expect("a tour");
    let (tour, _) = tour.split_once("```").expect("its end");
    let world = World::new();
    let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let folder = binary.parent().expect("a folder").display();
    let commands = tour.split("\n$ ");
    for command in commands {
        let (command, expected) = command.split_once('\n').unwrap_or((command, ""));
        let script = format!("PATH={folder}:$PATH; exec 2>&1; {command}");
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", &script]).current_dir(world.path());
        let shell = shell
            .env_remove("PLIMSOLL_STORE")
            .env_remove("PLIMSOLL_NAMESPACE");
        let said = shell.env_remove("COLUMNS").output().expect("a shell");
        let said = String::from_utf8(said.stdout).expect("text");
        assert_eq!(timeless(&said), timeless(expected), "{command}");
    }
}

#[test]
fn every_field_of_jobs_is_named() {
    let world = World::new();
    let object = |words: &[&str]| world.run(&[words, &["--json"]].concat()).ended(0).object();
    let set = [
        "job",
        "set",
        "import",
        "--partition",
        "0",
        "--partitions",
        "1",
    ];
    let set = object(&[&set[..], &["--tag", "ingest", "--finished"]].concat());
    assert_eq!(keys([&set]), fields("| `job set` |"));
    let listed = object(&["job", "list"]);
    assert_eq!(keys([&listed]), fields("| `job list`, `delete` |"));
    assert_eq!(keys([&listed["tags"][0]]), fields("| its `tags` |"));
    let shown = object(&["job", "show", "import"]);
    let mut named = fields("| `job list`, `delete` |");
    named.extend(fields("| `job show` |"));
    assert_eq!(keys([&shown]), named);
    let states = fields("| its `states`, its `lowest`, `job barrier` |");
    let reached = object(&["job", "barrier", "import", "ingest"]);
    for state in [&shown["states"][0], &listed["lowest"], &reached] {
        assert_eq!(keys([state]), states);
    }
    let watch = ["job", "watch", "import", "--until", "finished", "--json"];
    let events = world.run(&watch).ended(0).objects();
    let mut named = keys(&events);
    named.extend(
        events
            .iter()
            .filter_map(|event| event["event"].as_str().map(String::from)),
    );
    // Nobody fell behind here.
    named.insert("restarted".into());
    assert_eq!(named, fields("| `job watch` |"));
}

/// The words of a log are those of the library.
#[test]
fn every_level_is_a_word_of_the_command() {
    let world = World::new();
    world.submit(["q", "k"], "x", &["--key", "one"]);
    for level in Level::ALL {
        let logs = ["task", "logs", "key:one", "--level", level.as_str()];
        world.run(&logs).ended(0);
    }
    world
        .run(&["task", "logs", "key:one", "--level", "loud"])
        .ended(2);
}

/// Files of this folder that are written for people.
fn guides(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "md"))
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["", "docs", "docs/decisions"].map(|folder| root.join(folder));
    let guides: Vec<PathBuf> = folders.iter().flat_map(|folder| guides(folder)).collect();
    let mut followed = 0;
    for guide in &guides {
        let text = std::fs::read_to_string(guide).expect("text");
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            let file = link.split('#').next().unwrap_or_default();
            let folder = guide.parent().expect("a folder");
            let there = file.is_empty() || folder.join(file).exists();
            assert!(there, "{} links to {link}", guide.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "{followed} links in {guides:?}");
}
