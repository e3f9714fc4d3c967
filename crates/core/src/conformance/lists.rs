//! PLACEHOLDER

cases!["lists":];
