//! PLACEHOLDER

cases!["groups":];
