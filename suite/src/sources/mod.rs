// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sources in Rust, as far as names, modules and lines go.
//!
//! | file | what |
//! |---|---|
//! | `tokens` | the tokens of a source |
//! | `cfg` | what of it is compiled |
//! | `source` | its modules, their names and what they use; its lines |
//! | `krate` | the files of a crate and the arrows between them |
//! | `workspace` | the packages |

pub mod cfg;
pub mod krate;
pub mod source;
pub mod tokens;
pub mod workspace;
