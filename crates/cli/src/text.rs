//! Words for people: times, numbers, and text that does no harm to a terminal.

use std::time::Duration;

use plimsoll::Timestamp;

/// The text on one line, without anything that a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    let words = text.split(['\n', '\r', '\t']).map(str::trim);
    let line = words.filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    without_controls(&line)
}

/// The same lines, without anything else that a terminal would obey.
pub(crate) fn clean_lines(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\t', "    ");
        without_controls(&line)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Characters that end a line, move the cursor or turn the direction of writing are not shown.
fn without_controls(text: &str) -> String {
    text.replace(is_harmful, "\u{fffd}")
}

fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Any bytes on one line: what is no text, and what a terminal would obey, is escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_harmful(c) {
                true => text.extend(c.escape_default()),
                false => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// At most so many columns; what is cut off is marked.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if console::measure_text_width(text) <= width {
        return text.into();
    }
    let (mut kept, mut taken) = (String::new(), 0);
    for c in text.chars() {
        taken += console::measure_text_width(c.encode_utf8(&mut [0; 4]));
        if taken > width.saturating_sub(1) {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How long ago or from now, in one unit.
pub(crate) fn age(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        // Who asked for three hours reads "in 3h", not 2h.
        return format!("in {}", rough(at.since(now) + Duration::from_millis(999)));
    }
    match now.since(at) {
        since if since < Duration::from_secs(1) => "now".into(),
        since => format!("{} ago", rough(since)),
    }
}

/// A time in one unit.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        s @ 1..MINUTE => format!("{s}s"),
        s @ MINUTE..HOUR => format!("{}m", s / MINUTE),
        s @ HOUR..DAY => format!("{}h", s / HOUR),
        s => format!("{}d", s / DAY),
    }
}

/// A time in two units, or with one digit of seconds.
pub(crate) fn span(time: Duration) -> String {
    let two = |large: u64, name: char, small: u64, below: char| match small {
        0 => format!("{large}{name}"),
        _ => format!("{large}{name} {small}{below}"),
    };
    match time.as_secs() {
        0 if time < Duration::from_millis(1) => format!("{}µs", time.as_micros()),
        0 => format!("{}ms", time.as_millis()),
        s @ 1..MINUTE => match time.subsec_millis() / 100 {
            0 => format!("{s}s"),
            tenths => format!("{s}.{tenths}s"),
        },
        s @ MINUTE..HOUR => two(s / MINUTE, 'm', s % MINUTE, 's'),
        s @ HOUR..DAY => two(s / HOUR, 'h', s % HOUR / MINUTE, 'm'),
        s => two(s / DAY, 'd', s % DAY / HOUR, 'h'),
    }
}

/// A moment to the second, and how far away that is.
pub(crate) fn moment(now: Timestamp, at: Timestamp) -> String {
    let second = at.as_micros() - at.as_micros() % 1_000_000;
    let second = Timestamp::from_micros(second).unwrap_or(at);
    format!("{second} ({})", age(now, at))
}

/// A moment to the millisecond.
pub(crate) fn instant(at: Timestamp) -> String {
    let millis = at.as_micros() / 1_000 * 1_000;
    let at = Timestamp::from_micros(millis).unwrap_or(at);
    format!("{at:.3}")
}

/// So many bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    let number = bytes as f64;
    match number {
        ..1e3 => format!("{bytes} B"),
        1e3..1e6 => format!("{:.1} kB", number / 1e3),
        1e6..1e9 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.1} GB", number / 1e9),
    }
}

/// "1 task", "2 tasks".
pub(crate) fn count(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", crate::table::grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let now = Timestamp::from_micros(1_700_000_000_000_000).unwrap();
        for (seconds, expected) in [
            (0, "now"),
            (1, "1s ago"),
            (59, "59s ago"),
            (60, "1m ago"),
            (3_599, "59m ago"),
            (3_600, "1h ago"),
            (86_399, "23h ago"),
            (86_400, "1d ago"),
            (864_000, "10d ago"),
        ] {
            let at = now.saturating_minus(Duration::from_secs(seconds));
            assert_eq!(age(now, at), expected);
        }
        let later = now.saturating_plus(Duration::from_secs(200));
        assert_eq!(age(now, later), "in 3m");
    }

    #[test]
    fn a_span_has_two_units() {
        for (millis, expected) in [
            (0, "0µs"),
            (7, "7ms"),
            (3_000, "3s"),
            (3_249, "3.2s"),
            (60_000, "1m"),
            (250_000, "4m 10s"),
            (7_500_000, "2h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        assert_eq!(
            clean("a\n\tb\x1b[31mc\u{202e}d"),
            "a b\u{fffd}[31mc\u{fffd}d"
        );
        assert_eq!(clean_lines("a\n\tb\x07"), "a\n    b\u{fffd}");
    }

    #[test]
    fn bytes_are_shown_as_text_where_they_are() {
        assert_eq!(escaped("h\u{e9} 日 C:\\x".as_bytes()), "h\u{e9} 日 C:\\x");
        let bytes = b"a\n\0\xff\x1b[m\xe2\x80\xaeb\xe2\x80";
        assert_eq!(escaped(bytes), r"a\n\u{0}\xff\u{1b}[m\u{202e}b\xe2\x80");
    }

    #[test]
    fn what_is_cut_is_marked_and_no_wider() {
        assert_eq!(cut("hello", 5), "hello");
        assert_eq!(cut("hello", 4), "hel…");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
