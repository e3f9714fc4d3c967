//! PLACEHOLDER

cases!["claims":];
