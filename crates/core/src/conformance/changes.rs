//! PLACEHOLDER

cases!["changes":];
