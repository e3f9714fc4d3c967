//! What a command of `plimsoll work` says that the store refuses.

use crate::world::World;

/// Runs a script for one task, and answers what it logged.
fn logged(world: &World, script: &str) -> Vec<(String, String)> {
    world.submit(["q", "k"], "x", &["--key", "one"]);
    let work = ["work", "--queue", "q", "--until-empty", "--", "sh", "-c"];
    world.run(&[&work[..], &[script]].concat()).ended(0);
    let lines = world.run(&["task", "logs", "key:one", "--json"]);
    let lines = lines.ended(0).objects();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let line = |line: &serde_json::Value| (text(&line["level"]), text(&line["message"]));
    lines.iter().map(line).collect()
}

#[test]
fn an_attribute_that_is_refused_does_not_take_others_with_it() {
    let world = World::new();
    // Each fits, and all together do not.
    let script = r#"
        long=$(head -c 200000 /dev/zero | tr '\0' x)
        { for name in a b c d; do echo "set $name $long"; done; echo set e 7; } > $PLIMSOLL_CONTROL
    "#;
    let lines = logged(&world, script);
    let task = world.task("key:one");
    let set = task["attributes"].as_object().expect("an object");
    assert_eq!(task["attributes"]["e"]["json"], 7);
    assert!(set.contains_key("a") && !set.contains_key("d"), "{lines:?}");
    let refused = |line: &&(String, String)| line.1.starts_with("`set d` was refused: ");
    assert_eq!(lines.iter().filter(refused).count(), 1, "{lines:?}");
}

#[test]
fn a_line_that_is_too_long_for_the_log_is_cut_and_the_next_is_heard() {
    let world = World::new();
    let script = r#"
        long=$(head -c 70000 /dev/zero | tr '\0' x)
        { echo "log info $long"; echo log warn after; } > $PLIMSOLL_CONTROL
    "#;
    let lines = logged(&world, script);
    let cut = lines.iter().find(|line| line.1.starts_with("xxx"));
    let (_, cut) = cut.unwrap_or_else(|| panic!("the beginning"));
    assert!(cut.contains(" bytes left out]\n"), "{}", cut.len());
    assert!(lines.contains(&("warn".into(), "after".into())));
}
