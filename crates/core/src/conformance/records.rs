//! PLACEHOLDER

cases!["records":];
