//! PLACEHOLDER

cases!["keys":];
