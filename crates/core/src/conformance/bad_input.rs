//! PLACEHOLDER

cases!["bad_input":];
