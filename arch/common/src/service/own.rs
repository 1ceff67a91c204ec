// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a service has that has a physical CPU of its own.

use core::sync::atomic::AtomicBool;

use spin::Mutex;
use turnstile_service::request::Request;

/// What a service has for its CPU.
pub(super) struct Own {
    pub(super) request: Request,
    /// Held by the CPU while it handles something, and by who changes what the service reaches: in the order in which they ask.
    pub(super) turn: Mutex<()>,
    /// Its VM does not run: nothing is handled.
    pub(super) is_held: AtomicBool,
}

impl Own {
    /// Its CPU handles nothing yet, if it is held.
    pub(super) fn new(is_held: bool) -> Self {
        Self { request: Request::new(), turn: Mutex::new(()), is_held: AtomicBool::new(is_held) }
    }
}
