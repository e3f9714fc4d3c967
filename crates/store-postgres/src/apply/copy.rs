//! Many new rows at once, by `COPY`: a page of them is one record in the server's log, where `INSERT`
//! writes one for each row.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::call::{Call, Sql};
use crate::error::{Answer, Fault};

/// From so many rows on, `COPY` pays: it waits for the statements before it, and those after it wait
/// for it.
pub(crate) const MANY: usize = 128;

/// How much room for further rows is made at once.
const AHEAD_MAX: usize = 1 << 20;

/// A table that rows are copied to, with the types of its columns. Those that few rows have a value
/// for come last, and are not sent if none has: each costs time on both sides, also if it is empty.
pub(super) struct Table {
    pub(super) copy: Sql,
    pub(super) columns: &'static [Type],
    /// Without the columns that few have, and how many are left.
    pub(super) copy_usual: Sql,
    pub(super) usual: usize,
}

/// A [`Table`]: its name, columns that are always sent with their types, and the others.
macro_rules! table {
    ($name:literal, $usual:literal $types:tt, $rare:literal $more:tt) => {
        Table {
            copy: Sql {
                text: concat!(
                    "COPY plimsoll.", $name, " (", $usual, ", ", $rare, ") FROM STDIN (FORMAT binary)"
                ),
                types: &[],
            },
            columns: table!(@types $types $more),
            copy_usual: Sql {
                text: concat!("COPY plimsoll.", $name, " (", $usual, ") FROM STDIN (FORMAT binary)"),
                types: &[],
            },
            usual: table!(@count $types),
        }
    };
    (@types [$($usual:ident),*] [$($rare:ident),*]) => { &[$(Type::$usual),*, $(Type::$rare),*] };
    (@count [$($usual:ident),*]) => { [$(Type::$usual),*].len() };
}
pub(super) use table;

/// Whether no row has a value in a column.
pub(super) fn none<T>(column: &[Option<T>]) -> bool {
    column.iter().all(Option::is_none)
}

/// Rows in the binary format of `COPY`.
pub(super) struct Rows {
    copy: &'static Sql,
    columns: &'static [Type],
    /// How many rows are to come.
    left: usize,
    out: BytesMut,
}

impl Rows {
    /// For so many rows. `usual`: none has a value in a column that few have one in.
    pub(super) fn new(table: &'static Table, usual: bool, rows: usize) -> Self {
        let (copy, columns) = match usual {
            true => (&table.copy_usual, &table.columns[..table.usual]),
            false => (&table.copy, table.columns),
        };
        let mut out = BytesMut::new();
        // The signature, no flags, nothing more in the header.
        out.put_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        Self {
            copy,
            columns,
            left: rows,
            out,
        }
    }

    /// Adds a row: a value for each column of the table, in order.
    pub(super) fn push<const N: usize>(&mut self, row: [&(dyn ToSql + Sync); N]) -> Answer<()> {
        let before = self.out.len();
        self.out.put_i16(self.columns.len() as i16);
        for (value, column) in row.into_iter().zip(self.columns) {
            let place = self.out.len();
            self.out.put_i32(-1);
            let corrupt = |error| Fault::Corrupt(format!("cannot encode: {error}"));
            if let IsNull::No = value
                .to_sql_checked(column, &mut self.out)
                .map_err(corrupt)?
            {
                // Values are far below what the length can say.
                let length = (self.out.len() - place - 4) as i32;
                self.out[place..place + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
        // Rows are mostly as long as the one before.
        self.left = self.left.saturating_sub(1);
        let rest = (self.out.len() - before).saturating_mul(self.left);
        self.out.reserve(rest.min(AHEAD_MAX));
        Ok(())
    }

    pub(super) fn call(mut self) -> Call {
        self.out.put_i16(-1);
        Call::copy(self.copy, self.out.freeze())
    }
}
