//! Tables that fit the terminal.

use crate::exit::Outcome;
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text;

/// Between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    /// How narrow it may become; `None`: it is never cut.
    least: Option<usize>,
    /// Left out when the terminal is too narrow, the highest first; zero: never.
    rank: u8,
}

impl Column {
    pub(crate) const fn new(title: &'static str) -> Self {
        Self {
            title,
            right: false,
            least: None,
            rank: 0,
        }
    }

    pub(crate) const fn right(mut self) -> Self {
        self.right = true;
        self
    }

    pub(crate) const fn cut_to(mut self, least: usize) -> Self {
        self.least = Some(least);
        self
    }

    pub(crate) const fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }
}

/// What is in a place of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tint: Tint,
}

impl Cell {
    pub(crate) fn tinted(text: impl AsRef<str>, tint: Tint) -> Self {
        let text = text::clean(text.as_ref());
        Self { text, tint }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::tinted(text, Tint::Plain)
    }
}

/// How wide the columns are. It is decided by the first rows; more may follow.
#[derive(Debug)]
pub(crate) struct Grid {
    columns: Vec<Column>,
    /// `None`: left out.
    widths: Vec<Option<usize>>,
    /// Whether rows may not be wider. Where they may, later ones that are longer are shown whole.
    bounded: bool,
}

impl Grid {
    /// Fits the columns to these rows and this width. Columns without any text are left out.
    pub(crate) fn fit(columns: &[Column], rows: &[Vec<Cell>], width: Option<usize>) -> Self {
        let natural = columns.iter().enumerate().map(|(index, column)| {
            let texts = rows.iter().filter_map(|row| row.get(index));
            let widths = texts.map(|cell| console::measure_text_width(&cell.text));
            match widths.max() {
                Some(0) | None => None,
                Some(widest) => Some(widest.max(console::measure_text_width(column.title))),
            }
        });
        let natural: Vec<_> = natural.collect();
        Self {
            widths: fitted(columns, &natural, width.unwrap_or(usize::MAX)),
            columns: columns.to_vec(),
            bounded: width.is_some(),
        }
    }

    pub(crate) fn header(&self, screen: &Screen) -> String {
        let titles = self.columns.iter();
        let titles: Vec<_> = titles
            .map(|column| Cell::tinted(column.title, Tint::Faint))
            .collect();
        self.line(&titles, screen)
    }

    pub(crate) fn rows(&self, rows: &[Vec<Cell>], screen: &Screen) -> String {
        rows.iter().map(|row| self.line(row, screen)).collect()
    }

    fn line(&self, cells: &[Cell], screen: &Screen) -> String {
        let shown = self.columns.iter().zip(&self.widths).zip(cells);
        let mut line = String::new();
        // Blanks are written before the next text, so that none are at the end.
        let mut blanks = 0;
        for ((column, width), cell) in shown {
            let Some(width) = *width else { continue };
            let text = match column.least {
                Some(_) if self.bounded => text::cut(&cell.text, width),
                _ => cell.text.clone(),
            };
            let missing = width.saturating_sub(console::measure_text_width(&text));
            let (before, after) = if column.right {
                (missing, 0)
            } else {
                (0, missing)
            };
            blanks += before;
            if !text.is_empty() {
                line.push_str(&" ".repeat(blanks));
                line.push_str(&screen.paint(cell.tint, &text));
                blanks = 0;
            }
            blanks += after + GAP;
        }
        line.push('\n');
        line
    }
}

/// Rows of a table that may be endless, shown a block at a time: the first block decides how wide
/// the columns are.
#[derive(Debug)]
pub(crate) struct Blocks {
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
    /// How much text is in them.
    bytes: usize,
    grid: Option<Grid>,
}

impl Blocks {
    /// So many rows are a block.
    const ROWS: usize = 500;
    /// So much text is one too, so that no more of it is held.
    const BYTES: usize = 1 << 20;

    pub(crate) fn new(columns: &'static [Column]) -> Self {
        Self {
            columns,
            rows: Vec::new(),
            bytes: 0,
            grid: None,
        }
    }

    /// Whether somebody still listens.
    pub(crate) fn push(&mut self, row: Vec<Cell>, screen: &Screen) -> Outcome<bool> {
        match self.is_full_with(row) {
            true => self.flush(screen),
            false => Ok(true),
        }
    }

    fn is_full_with(&mut self, row: Vec<Cell>) -> bool {
        self.bytes += row.iter().map(|cell| cell.text.len()).sum::<usize>();
        self.rows.push(row);
        self.rows.len() >= Self::ROWS || self.bytes >= Self::BYTES
    }

    /// Shows what has not been shown yet.
    pub(crate) fn flush(&mut self, screen: &Screen) -> Outcome<bool> {
        Ok(say(&self.block(screen))?)
    }

    /// The rows that have not been shown yet.
    pub(crate) fn block(&mut self, screen: &Screen) -> String {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows.is_empty() {
            return String::new();
        }
        let first = self.grid.is_none();
        let fit = || Grid::fit(self.columns, &rows, screen.width);
        let grid = self.grid.get_or_insert_with(fit);
        let header = match first {
            true => grid.header(screen),
            false => String::new(),
        };
        header + &grid.rows(&rows, screen)
    }
}

/// Cuts what may be cut, the widest first; where that is not enough, leaves out the column that
/// matters least.
fn fitted(columns: &[Column], natural: &[Option<usize>], width: usize) -> Vec<Option<usize>> {
    let mut kept = natural.to_vec();
    loop {
        let mut widths = kept.clone();
        while total(&widths) > width {
            let can_shrink = widths.iter_mut().zip(columns);
            let can_shrink = can_shrink.filter_map(|(width, column)| {
                let (width, least) = (width.as_mut()?, column.least?);
                (*width > least).then_some(width)
            });
            match can_shrink.max_by_key(|width| **width) {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        let droppable = kept.iter_mut().zip(columns);
        let droppable = droppable.filter(|(kept, column)| kept.is_some() && column.rank > 0);
        match droppable.max_by_key(|(_, column)| column.rank) {
            Some((least_needed, _)) if total(&widths) > width => *least_needed = None,
            _ => return widths,
        }
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let kept = widths.iter().flatten();
    let gaps = kept.clone().count().saturating_sub(1) * GAP;
    kept.sum::<usize>() + gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("ID"),
        Column::new("LANE").cut_to(4),
        Column::new("N").right(),
        Column::new("NOTE").cut_to(4).rank(1),
    ];

    fn shown(width: usize) -> String {
        let rows = [
            ["one", "mail/send", "7", "a long note"],
            ["three", "x/y", "", "short"],
            ["four", "x/y", "1,000", ""],
        ];
        let rows = rows.map(|row| row.map(Cell::from).to_vec());
        let screen = Screen::plain(Some(width));
        let grid = Grid::fit(&COLUMNS, &rows, Some(width));
        grid.header(&screen) + &grid.rows(&rows, &screen)
    }

    #[test]
    fn a_wide_table_is_shown_whole_without_blanks_at_the_end() {
        let expected = "\
ID     LANE           N  NOTE
one    mail/send      7  a long note
three  x/y               short
four   x/y        1,000
";
        assert_eq!(shown(36), expected);
    }

    #[test]
    fn a_narrow_table_cuts_the_widest_first() {
        let expected = "\
ID     LANE         N  NOTE
one    mail/s…      7  a long…
three  x/y             short
four   x/y      1,000
";
        assert_eq!(shown(30), expected);
    }

    #[test]
    fn a_very_narrow_table_leaves_out_what_matters_least() {
        let expected = "\
ID     LANE       N
one    mail…      7
three  x/y
four   x/y    1,000
";
        assert_eq!(shown(19), expected);
    }

    #[test]
    fn later_rows_are_cut_only_where_there_is_no_room() {
        let row = |lane: &str| [vec!["one".into(), lane.into(), "7".into(), "".into()]];
        let shown = |width| {
            let screen = Screen::plain(width);
            let grid = Grid::fit(&COLUMNS, &row("a/b"), width);
            grid.rows(&row("mail/send"), &screen)
        };
        assert_eq!(shown(None), "one  mail/send  7\n");
        assert_eq!(shown(Some(80)), "one  mai…  7\n");
    }

    #[test]
    fn a_block_has_so_many_rows_or_so_much_text_and_only_the_first_a_header() {
        let row = |lane: &str| vec!["one".into(), lane.into(), "7".into(), "".into()];
        let screen = Screen::plain(None);
        let mut table = Blocks::new(&COLUMNS);
        let full = (1..).find(|_| table.is_full_with(row("a/b")));
        assert_eq!(full, Some(Blocks::ROWS));
        assert_eq!(table.block(&screen).lines().count(), Blocks::ROWS + 1);
        let long = "x".repeat(Blocks::BYTES / 3);
        let full = (1..).find(|_| table.is_full_with(row(&long)));
        assert_eq!(full, Some(3));
        assert_eq!(table.block(&screen).lines().count(), 3);
        assert_eq!(table.block(&screen), "");
    }

    #[test]
    fn a_column_without_text_is_left_out() {
        let rows = [vec!["one".into(), "".into(), "7".into(), "".into()]];
        let grid = Grid::fit(&COLUMNS, &rows, None);
        assert_eq!(grid.header(&Screen::plain(None)), "ID   N\n");
    }
}
