//! PLACEHOLDER

cases!["commits":];
