// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System parameters (LoPAPR 7.3.16): facts about the machine, each with a number.

use core::fmt::Write;

use heapless::String;

use super::{Services, Status};
use crate::Memory;

/// What the partition may have, as text.
const SPLPAR_CHARACTERISTICS: u32 = 20;
/// Whether diagnostics run: they do not.
const DIAGNOSTICS_RUN_MODE: u32 = 42;
/// The most bytes of a parameter.
const MOST: usize = 126;

/// `ibm,get-system-parameter`: the parameter, the buffer and its length. The buffer gets the length of the value in two
/// bytes, and as much of the value as there is room for.
pub(super) fn get(
    [parameter, buffer, length]: [u32; 3],
    memory: &impl Memory,
    services: &impl Services,
) -> Status {
    let mut value = String::<MOST>::new();
    match parameter {
        SPLPAR_CHARACTERISTICS => {
            let vcpus = services.processors().count();
            let megabytes = services.memory_size() >> 20;
            // Cannot fail: it is shorter than the string.
            let _ =
                write!(value, "MaxEntCap={vcpus},DesMem={megabytes},DesProcs={vcpus},MaxPlatProcs={vcpus}\0");
        }
        DIAGNOSTICS_RUN_MODE => {
            let _ = value.push('\0');
        }
        _ => return Status::Parameter,
    }
    store(memory, buffer.into(), length as usize, value.as_bytes())
}

fn store(memory: &impl Memory, buffer: u64, length: usize, value: &[u8]) -> Status {
    let Some(room) = length.checked_sub(2) else { return Status::BadLength };
    let value = value.get(..room).unwrap_or(value);
    let head = (value.len() as u16).to_be_bytes();
    if memory.write(buffer, &head) && memory.write(buffer + 2, value) {
        Status::Success
    } else {
        Status::Parameter
    }
}

/// `ibm,set-system-parameter`.
pub(super) fn set(parameter: u32) -> Status {
    match parameter {
        SPLPAR_CHARACTERISTICS | DIAGNOSTICS_RUN_MODE => Status::NotAuthorized,
        _ => Status::Parameter,
    }
}
