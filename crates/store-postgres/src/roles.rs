//! Who may do what.

use plimsoll_core::Result;
use plimsoll_core::error::Applied;

use crate::config::Config;
use crate::error::Answer;
use crate::schema::grants_sql;
use crate::session::Session;

/// Gives a role what [`grants_sql`] says. To be called after each migration.
pub async fn grant(config: &Config, role: &str) -> Result<()> {
    let granted = grant_in(config, role).await;
    granted.map_err(|fault| fault.into_error(Applied::No))
}

async fn grant_in(config: &Config, role: &str) -> Answer<()> {
    let mut session = Session::connect(config).await?;
    let grants = grants_sql(&config.schema, role);
    session.execute(&grants).await
}
