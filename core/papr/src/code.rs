// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls answer in R3 (LoPAPR 14.5.1, table "Hypervisor Call Return Code Values").

/// What a call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the guest waits for it in R3"]
pub struct Code(i16);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal),+ $(,)?) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code($value);)+
        }
    };
}

codes! {
    /// It is done.
    SUCCESS = 0,
    /// Try again.
    BUSY = 1,
    /// What is named is closed, or does not run.
    CLOSED = 2,
    /// Not at present.
    NOT_AVAILABLE = 3,
    /// Something failed that the caller has no part in.
    HARDWARE = -1,
    /// There is no such call.
    FUNCTION = -2,
    /// The caller may not.
    PRIVILEGE = -3,
    /// An argument is wrong; as a rule the first.
    PARAMETER = -4,
    /// There is none of that name.
    NOT_FOUND = -7,
    /// The caller has no right to it.
    AUTHORITY = -10,
    /// It may not be done.
    PERMISSION = -11,
    /// Something that is needed is missing, or is still in use.
    RESOURCE = -16,
    /// The state it is in does not allow it.
    R_STATE = -45,
    /// The second argument is wrong.
    P2 = -55,
    /// The third argument is wrong.
    P3 = -56,
    /// The fourth argument is wrong.
    P4 = -57,
    /// The fifth argument is wrong.
    P5 = -58,
    /// The sixth argument is wrong.
    P6 = -59,
    /// It would overlap.
    OVERLAP = -68,
    /// A flag is not known.
    UNSUPPORTED_FLAG = -256,
}

impl Code {
    /// Returns the register's value.
    #[inline(always)] // A constant where it is used.
    pub const fn value(self) -> u64 {
        self.0 as i64 as u64
    }
}
