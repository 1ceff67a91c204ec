// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutants that were tried.

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A test failed, or did not end.
    Caught,
    /// No test noticed it.
    Survived,
    /// It does not compile.
    Unviable,
}

/// A mutant that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The package in which it was.
    pub package: String,
    /// Place and change.
    pub what: String,
    /// What became of it.
    pub fate: Fate,
}
