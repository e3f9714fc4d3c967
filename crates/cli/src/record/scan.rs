//! `plimsoll record scan`.

use clap::Args;
use futures::TryStreamExt;
use plimsoll::record::{Operator, Record};
use plimsoll::{Name, Prefix, Timestamp, records};

use super::given::{Bounds, Given, given, range};
use super::show::{WireRecord, in_line};
use super::write::values;
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Blocks, Cell, Column};
use crate::text::{age, rough};

/// Shows the records whose keys begin with a prefix and whose fields meet all conditions, in key order.
///
/// A condition compares integers where its value is one, and text otherwise. A field that is absent, or
/// no integer where one is compared, meets none.
#[derive(Debug, Args)]
pub(super) struct Scan {
    /// What the keys begin with; '': all, those of the engine among them.
    prefix: Prefix,
    /// Only where the field equals this.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given, help_heading = "Conditions")]
    eq: Vec<Given>,
    /// Only where the field is there and differs from this.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given, help_heading = "Conditions")]
    ne: Vec<Given>,
    /// Only where the field is less than this.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given, help_heading = "Conditions")]
    lt: Vec<Given>,
    /// Only where the field is greater than this.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given, help_heading = "Conditions")]
    gt: Vec<Given>,
    /// Only where the field is an integer of this range, in its order: found through an index, which
    /// must have been declared on the same prefix. `5..9` does not have 9, `5..=9` does.
    #[arg(long, value_name = "FIELD=A..B", value_parser = range, help_heading = "Conditions")]
    range: Option<(Name, Bounds)>,
    /// Compares all values as text.
    #[arg(long, help_heading = "Conditions")]
    text: bool,
    /// At most so many.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
}

impl Scan {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let mut found = self.scan(client)?.stream();
        let screen = &client.screen;
        let mut table = Blocks::new(&COLUMNS);
        let mut any = false;
        while let Some(record) = found.try_next().await? {
            any = true;
            let heard = match screen.json {
                true => screen.object(&WireRecord::from(&record))?,
                false => table.push(row(&record, client.now()), screen)?,
            };
            if !heard {
                return Ok(OK);
            }
        }
        table.flush(screen)?;
        if !any && !screen.json {
            screen.note("No records match.");
        }
        Ok(OK)
    }

    fn scan(&self, client: &Client) -> Outcome<records::Scan> {
        let mut values = values(client);
        let mut scan = client.engine.records().scan(&self.prefix);
        for (operator, conditions) in [
            (Operator::Equal, &self.eq),
            (Operator::NotEqual, &self.ne),
            (Operator::Less, &self.lt),
            (Operator::Greater, &self.gt),
        ] {
            for condition in conditions {
                let (name, value) = values.typed(condition, self.text)?;
                scan = scan.filter(name, operator, value);
            }
        }
        if let Some((name, bounds)) = &self.range {
            scan = scan.range(name, *bounds);
        }
        if let Some(max) = self.max {
            scan = scan.max_results(max);
        }
        Ok(scan)
    }
}

const COLUMNS: [Column; 5] = [
    Column::new("KEY").cut_to(20),
    Column::new("REVISION").right().rank(3),
    Column::new("AGE").right().rank(2),
    Column::new("EXPIRES").rank(1),
    Column::new("FIELDS").cut_to(20),
];

fn row(record: &Record, now: Timestamp) -> Vec<Cell> {
    let expires = record.expires_at.map(|at| age(now, at));
    vec![
        record.key.as_str().into(),
        record.revision.to_string().into(),
        rough(now.since(record.modified_at)).into(),
        expires.unwrap_or_default().into(),
        in_line(&record.fields).into(),
    ]
}
