//! Cuts a stream of bytes into lines of a bounded length.

/// Cuts bytes into lines. Of a line that is too long, the beginning is kept.
#[derive(Debug)]
pub(super) struct Lines {
    max: usize,
    line: Vec<u8>,
    /// How many bytes of the current line were left out.
    cut: u64,
}

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// How many bytes were left out at its end.
    pub(super) cut: u64,
}

impl Lines {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
            cut: 0,
        }
    }

    /// Takes in bytes, and hands out the lines that are complete.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end]);
            each(self.cut_off());
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    /// The last line, if it has no end.
    pub(super) fn last(&mut self) -> Option<Line> {
        (!self.line.is_empty() || self.cut > 0).then(|| self.cut_off())
    }

    fn add(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.max - self.line.len());
        self.line.extend_from_slice(&bytes[..kept]);
        self.cut += (bytes.len() - kept) as u64;
    }

    fn cut_off(&mut self) -> Line {
        if self.line.last() == Some(&b'\r') && self.cut == 0 {
            self.line.pop();
        }
        let text = plain(&self.line);
        self.line.clear();
        Line {
            text,
            cut: std::mem::take(&mut self.cut),
        }
    }
}

/// Text as every store takes it.
pub(super) fn plain(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes in pieces of every size give the same lines.
    fn lines(max: usize, bytes: &[u8]) -> Vec<(String, u64)> {
        let in_pieces = |size: usize| {
            let (mut lines, mut found) = (Lines::new(max), Vec::new());
            for piece in bytes.chunks(size) {
                lines.take(piece, |line| found.push(line));
            }
            found.extend(lines.last());
            found
        };
        let whole = in_pieces(bytes.len().max(1));
        for size in 1..=bytes.len() {
            assert_eq!(in_pieces(size), whole, "in pieces of {size}");
        }
        (whole.into_iter())
            .map(|line| (line.text, line.cut))
            .collect()
    }

    fn kept(text: &str) -> (String, u64) {
        (text.into(), 0)
    }

    #[test]
    fn lines_end_where_they_end() {
        assert_eq!(lines(9, b""), []);
        assert_eq!(lines(9, b"a\nb\n"), [kept("a"), kept("b")]);
        assert_eq!(lines(9, b"a\r\n\nb"), [kept("a"), kept(""), kept("b")]);
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(lines(3, b"abcdef\nx"), [("abc".into(), 3), kept("x")]);
        assert_eq!(lines(3, b"abc\nabcd"), [kept("abc"), ("abc".into(), 1)]);
        assert_eq!(lines(3, b"abc\r\n"), [("abc".into(), 1)]);
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        assert_eq!(lines(9, b"a\0b\xff\n"), [kept("a\u{fffd}b\u{fffd}")]);
        // A character that is cut in two is one question mark, not an error.
        assert_eq!(lines(2, "aé\n".as_bytes()), [("a\u{fffd}".into(), 1)]);
    }
}
