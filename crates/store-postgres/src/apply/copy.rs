//! Many new rows at once, by `COPY`: a page of them is one record in the server's log, where `INSERT`
//! writes one for each row.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::error::{Answer, Fault};
use crate::session::{Call, Sql};

/// From so many rows on, `COPY` pays: it waits for the statements before it, and those after it wait
/// for it.
pub(super) const MANY: usize = 128;

/// A table that rows are copied to: the statement, and the types of the columns that it names.
pub(super) struct Table {
    pub(super) copy: Sql,
    pub(super) columns: &'static [Type],
}

/// Rows in the binary format of `COPY`.
pub(super) struct Rows {
    table: &'static Table,
    out: BytesMut,
}

impl Rows {
    pub(super) fn new(table: &'static Table) -> Self {
        let mut out = BytesMut::new();
        // The signature, no flags, nothing more in the header.
        out.put_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        Self { table, out }
    }

    /// Adds a row: a value for each column, in order.
    pub(super) fn push<const N: usize>(&mut self, row: [&(dyn ToSql + Sync); N]) -> Answer<()> {
        debug_assert_eq!(N, self.table.columns.len());
        self.out.put_i16(N as i16);
        for (value, column) in row.into_iter().zip(self.table.columns) {
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
        Ok(())
    }

    pub(super) fn call(mut self) -> Call {
        self.out.put_i16(-1);
        Call::copy(&self.table.copy, self.out.freeze())
    }
}
