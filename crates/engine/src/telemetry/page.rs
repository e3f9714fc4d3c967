//! The table of metrics as a page for people.

use super::table::{Kind, METRICS, Metric};

/// The table of all metrics, in Markdown: what `docs/telemetry.md` shows.
pub fn markdown() -> String {
    let mut page = String::from("| metric | kind | labels | what |\n|---|---|---|---|\n");
    for metric in METRICS {
        let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
        page += &format!("| `{name}` | {kind} | {} | {help} |\n", labels(metric));
    }
    page.push_str("\n| histogram | buckets |\n|---|---|\n");
    for metric in METRICS {
        if let Kind::Histogram(buckets) = metric.kind {
            let bounds: Vec<String> = buckets.iter().map(f64::to_string).collect();
            page += &format!("| `{}` | {} |\n", metric.name, bounds.join(", "));
        }
    }
    page
}

fn labels(metric: &Metric) -> String {
    let label = |label: &&str| match label.strip_suffix('?') {
        Some(label) => format!("`{label}` (opt-in)"),
        None => format!("`{label}`"),
    };
    let labels: Vec<String> = metric.labels.iter().map(label).collect();
    labels.join(", ")
}
