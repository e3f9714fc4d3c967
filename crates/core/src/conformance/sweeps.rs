//! PLACEHOLDER

cases!["sweeps":];
