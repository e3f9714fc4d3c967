//! PLACEHOLDER

cases!["settling":];
