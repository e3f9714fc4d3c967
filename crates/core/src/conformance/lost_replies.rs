//! PLACEHOLDER

cases!["lost_replies":];
