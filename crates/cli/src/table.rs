//! Figures for people, in 80 columns.

use std::fmt::Write;

use plimsoll_bench::{Figures, Workload};

use crate::place::is_memory;

const WIDTH: usize = 80;

/// The workloads by name.
pub(crate) fn list(workloads: &[Workload]) -> String {
    let mut text = String::new();
    for workload in workloads {
        let mark = if workload.full_only { "*" } else { "" };
        line(
            &mut text,
            format_args!("{:24} {mark:1} {}", workload.name, workload.about),
        );
    }
    line(&mut text, format_args!("\n* only with --full"));
    text
}

/// The figures of all workloads, and what they mean.
pub(crate) fn show(all: &[Figures]) -> String {
    let (claims, others): (Vec<_>, Vec<_>) = (all.iter())
        .partition(|figures| figures.to_smallest.is_some() && figures.word("backlog").is_some());
    let mut text = String::new();
    if let Some(first) = all.first() {
        text += &wrapped(&setup(first));
        text.push('\n');
    }
    if !others.is_empty() {
        text += &of_calls(&others);
        text.push('\n');
    }
    if !claims.is_empty() {
        text += &of_claims(&claims);
        text.push('\n');
    }
    text += &wrapped(&summary(all, &claims));
    if let Some(filesystem) = all.iter().find_map(is_memory) {
        text.push('\n');
        text += &wrapped(&costs_nothing(filesystem));
    }
    text
}

/// What to say of figures that are meant to be of a disk and are not.
pub(crate) fn costs_nothing(filesystem: &str) -> String {
    format!(
        "Beware: the file is on {filesystem}, which is memory. An fsync costs nothing there, so \
         these figures say nothing about a disk: name a file on one with --store sqlite:PATH."
    )
}

fn setup(figures: &Figures) -> String {
    let place = match figures.word("filesystem") {
        Some(filesystem) => format!("{}, a file on {filesystem}", figures.store),
        None => figures.store.clone(),
    };
    let promise = match figures.word("durability") {
        Some("process") => "A write is in this process's memory when its caller is told.",
        Some("system") => {
            "A write is with the operating system when its caller is told: it survives the \
             process, not the machine."
        }
        Some("majority") => "A write is on the disks of a majority before its caller is told.",
        _ => "A write is on disk before its caller is told.",
    };
    format!("Store: {place}. {promise}")
}

fn of_calls(all: &[&Figures]) -> String {
    let mut text = String::new();
    line(
        &mut text,
        format_args!(
            "{:16} {:>15} {:>13} {:>8} {:>8} {:>8} {:>6}",
            "workload", "per second", "call", "p50", "p99", "written", "fsyncs"
        ),
    );
    for figures in all {
        let rate = figures.operations_per_second;
        line(
            &mut text,
            format_args!(
                "{:16} {:>15} {:>13} {:>8} {:>8} {:>8} {:>6}",
                figures.name,
                format!("{} {}s", grouped(rate.round() as u64), figures.operation),
                figures.latency_of,
                micros(figures.p50_us),
                micros(figures.p99_us),
                or_unknown(figures.bytes_per_operation.map(bytes)),
                or_unknown(figures.fsyncs_per_operation.map(fsyncs)),
            ),
        );
        line(&mut text, format_args!("  {}", figures.about));
        if let Some(ratio) = figures.to_smallest {
            line(
                &mut text,
                format_args!(
                    "  {:.2} times (p50) and {:.2} times (p99) as long as beside the fewest",
                    ratio.p50, ratio.p99
                ),
            );
        }
        if let Some(ratio) = figures.to_alone {
            line(
                &mut text,
                format_args!("  {ratio:.2} times as many as the same callers alone"),
            );
        }
    }
    text
}

fn of_claims(all: &[&Figures]) -> String {
    let mut text = String::new();
    line(
        &mut text,
        format_args!(
            "{:>8}  {:10} {:>10} {:>10} {:>8} {:>10} {:>8}",
            "claim of", "beside", "tasks", "p50", "ratio", "p99", "ratio"
        ),
    );
    for figures in all {
        let Some(ratio) = figures.to_smallest else {
            continue;
        };
        line(
            &mut text,
            format_args!(
                "{:>8}  {:10} {:>10} {:>10} {:>8.2} {:>10} {:>8.2}",
                figures.number("limit").unwrap_or(0),
                figures.word("backlog").unwrap_or(""),
                grouped(figures.number("depth").unwrap_or(0)),
                micros(figures.p50_us),
                ratio.p50,
                micros(figures.p99_us),
                ratio.p99,
            ),
        );
    }
    text
}

fn summary(all: &[Figures], claims: &[&Figures]) -> String {
    let mut said = Vec::new();
    if let Some(cycle) = all.iter().find(|figures| figures.name == "cycle") {
        said.push(format!(
            "On this machine, one process takes {} tasks a second from submit through claim to \
             completion.",
            grouped(cycle.operations_per_second.round() as u64)
        ));
        if let Some(fsyncs @ 0.0001..) = cycle.fsyncs_per_operation {
            said.push(format!(
                "About {:.0} of them share one fsync.",
                (1.0 / fsyncs).max(1.0)
            ));
        }
    }
    let ratios = || claims.iter().filter_map(|figures| figures.to_smallest);
    let depth = claims.iter().filter_map(|figures| figures.number("depth"));
    if let Some(depth) = depth.max() {
        said.push(format!(
            "Beside up to {} tasks, a claim took at most {:.2} times (p50) and {:.2} times (p99) \
             as long as beside the fewest; the ratios are to these.",
            grouped(depth),
            ratios().map(|ratio| ratio.p50).fold(0.0, f64::max),
            ratios().map(|ratio| ratio.p99).fold(0.0, f64::max),
        ));
    }
    said.push("Half of the calls were answered within the p50, 99 of 100 within the p99.".into());
    let seen = |figures: &Figures| figures.bytes_per_operation.is_some();
    said.push(match all.iter().any(seen) {
        true => {
            "What was written to disk, and the fsyncs that callers waited for, are averages of one \
             operation."
        }
        false => "What was written to disk is not known here.",
    }
    .into());
    if let Some(peak) = all
        .iter()
        .filter_map(|figures| figures.peak_rss_bytes)
        .max()
    {
        said.push(format!(
            "The process took at most {} of memory.",
            bytes(peak as f64)
        ));
    }
    said.join(" ")
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(text, "{line}").ok();
}

/// Text broken between words, each line with its end.
fn wrapped(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines.push('\n');
    lines
}

fn or_unknown(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "?".into())
}

fn fsyncs(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        _ => format!("{number:.3}"),
    }
}

fn bytes(number: f64) -> String {
    match number {
        ..1e3 => format!("{number:.0} B"),
        1e3..1e6 => format!("{:.1} kB", number / 1e3),
        1e6..1e9 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.1} GB", number / 1e9),
    }
}

fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// A number whose digits are grouped by three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_bench::Ratio;

    use super::*;

    fn figures(name: &str, filesystem: &str) -> Figures {
        Figures {
            name: name.into(),
            about: "does something",
            store: "sqlite".into(),
            operation: "cycle".into(),
            operations: 1_000,
            seconds: 0.5,
            operations_per_second: 123_456.7,
            latency_of: "submit".into(),
            p50_us: 999,
            p99_us: 59_999_999,
            max_us: 59_999_999,
            bytes_per_operation: Some(58_181.0),
            fsyncs_per_operation: Some(0.02),
            peak_rss_bytes: None,
            counts: BTreeMap::new(),
            settings: BTreeMap::from([
                ("durability", "disk".into()),
                ("filesystem", filesystem.into()),
            ]),
            to_smallest: None,
            to_alone: None,
        }
    }

    #[test]
    fn a_row_says_how_many_of_what_and_how_long_which_call_took() {
        let shown = show(&[figures("cycle", "ext4")]);
        let row = shown.lines().find(|line| line.starts_with("cycle"));
        let words: Vec<&str> = row.expect("a row").split_whitespace().collect();
        let expected = "cycle 123,457 cycles submit 999 µs 60.0 s 58.2 kB 0.020";
        assert_eq!(words.join(" "), expected);
        assert!(
            shown.contains("About 50 of them share one fsync."),
            "{shown}"
        );
    }

    #[test]
    fn nothing_is_said_of_what_a_server_writes() {
        let shown = show(&[Figures {
            bytes_per_operation: None,
            fsyncs_per_operation: None,
            ..figures("cycle", "ext4")
        }]);
        assert!(!shown.contains("fsyncs that callers"), "{shown}");
        assert!(shown.contains("is not known"), "{shown}");
    }

    #[test]
    fn a_file_in_memory_is_called_one_unless_nobody_expects_a_disk() {
        assert!(!show(&[figures("cycle", "ext4")]).contains("Beware"));
        let mut found = figures("cycle", "tmpfs");
        assert!(show(&[found.clone()]).contains("Beware: the file is on tmpfs"));
        found.settings.insert("durability", "system".into());
        assert!(!show(&[found]).contains("Beware"));
    }

    #[test]
    fn the_worst_ratio_of_all_claims_is_in_the_summary() {
        let claim = |depth: u64, p50, p99| {
            let mut found = figures("claim", "ext4");
            found.settings.insert("depth", depth.into());
            found.settings.insert("backlog", "waiting".into());
            found.to_smallest = Some(Ratio { p50, p99 });
            found
        };
        let shown = show(&[claim(1_000, 1.0, 1.0), claim(5_000_000, 1.1, 1.3)]);
        let one_line = shown.replace('\n', " ");
        let expected =
            "up to 5,000,000 tasks, a claim took at most 1.10 times (p50) and 1.30 times";
        assert!(one_line.contains(expected), "{shown}");
    }

    #[test]
    fn what_is_no_claim_has_its_ratios_below_its_row() {
        let mut found = figures("range-1m", "ext4");
        found.to_smallest = Some(Ratio {
            p50: 1.1,
            p99: 1.25,
        });
        found.to_alone = Some(0.934);
        let shown = show(&[found]);
        let below: Vec<&str> = (shown.lines())
            .skip_while(|line| !line.starts_with("range-1m"))
            .skip(2)
            .collect();
        assert!(below[0].contains("1.10 times (p50) and 1.25 times (p99)"));
        assert!(below[1].contains("0.93 times as many as the same callers alone"));
        assert!(!shown.contains("a claim took"), "{shown}");
    }
}
