//! PLACEHOLDER

cases!["cancel":];
