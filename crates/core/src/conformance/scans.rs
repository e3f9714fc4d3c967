//! PLACEHOLDER

cases!["scans":];
