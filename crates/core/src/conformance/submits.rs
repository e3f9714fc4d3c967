//! PLACEHOLDER

cases!["submits":];
