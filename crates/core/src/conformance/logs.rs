//! PLACEHOLDER

cases!["logs":];
