//! Durations as people write them.

use std::time::Duration;

use plimsoll::limits::DURATION_MAX;

const UNITS: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];

/// Reads `500ms`, `30s`, `1.5h`; a number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let unit = if unit.is_empty() { "s" } else { unit };
    let factor = UNITS.iter().find(|(name, _)| *name == unit);
    let seconds = match (number.parse::<f64>(), factor) {
        (Ok(number), Some((_, factor))) => number * factor,
        _ => return Err("expected a number with ms, s, m, h or d, as in 30s".into()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err("must not be longer than a hundred years".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_bounds() {
        for (text, millis) in [
            ("30s", 30_000),
            ("30", 30_000),
            ("0", 0),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            (" 1d ", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "", "s", "-1s", "1 s", "1w", "1e9", "NaN", "1.2.3", "40000d", "9e99h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
