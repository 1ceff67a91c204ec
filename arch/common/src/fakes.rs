// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recorder in the place of the hardware: values by name, and every access in order.

use std::cell::RefCell;
use std::collections::HashMap;

/// One access that a handler made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The register was read.
    Read(&'static str),
    /// The register was written with the value.
    Write(&'static str, u64),
}

#[derive(Default)]
struct Recorder {
    values: HashMap<&'static str, u64>,
    log: Vec<Access>,
    instructions: Vec<&'static str>,
}

thread_local!(static RECORDER: RefCell<Recorder> = RefCell::default());

/// Forgets all values and accesses of this thread.
pub fn reset() {
    RECORDER.with_borrow_mut(|r| *r = Recorder::default());
}

/// Gives a register a value without recording an access.
pub fn set(name: &'static str, value: u64) {
    RECORDER.with_borrow_mut(|r| r.values.insert(name, value));
}

/// Returns a register's value without recording an access; registers never written are zero.
pub fn get(name: &'static str) -> u64 {
    RECORDER.with_borrow(|r| r.values.get(name).copied().unwrap_or(0))
}

/// Moves this thread to another CPU: exchanges all values for those of `cpu`.
pub fn exchange(cpu: &mut HashMap<&'static str, u64>) {
    RECORDER.with_borrow_mut(|r| std::mem::swap(&mut r.values, cpu));
}

/// Takes the accesses recorded since the last call.
pub fn take_log() -> Vec<Access> {
    RECORDER.with_borrow_mut(|r| std::mem::take(&mut r.log))
}

/// Reads a register, and records it.
pub fn read(name: &'static str) -> u64 {
    RECORDER.with_borrow_mut(|r| {
        r.log.push(Access::Read(name));
        r.values.get(name).copied().unwrap_or(0)
    })
}

/// Writes a register, and records it.
pub fn write(name: &'static str, value: u64) {
    RECORDER.with_borrow_mut(|r| {
        r.log.push(Access::Write(name, value));
        r.values.insert(name, value);
    });
}

/// Records an instruction that is no access of a register.
pub fn execute(instruction: &'static str) {
    RECORDER.with_borrow_mut(|r| r.instructions.push(instruction));
}

/// Takes the instructions recorded since the last call.
pub fn take_instructions() -> Vec<&'static str> {
    RECORDER.with_borrow_mut(|r| std::mem::take(&mut r.instructions))
}
