//! PLACEHOLDER

cases!["concurrency":];
