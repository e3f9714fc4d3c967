//! PLACEHOLDER

cases!["retention":];
