//! PLACEHOLDER

cases!["retries":];
