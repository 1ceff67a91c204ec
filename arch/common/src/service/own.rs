// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a service has for the physical CPU that alone runs it.

use core::sync::atomic::AtomicBool;

use spin::Mutex;
use turnstile_service::request::Request;

/// See the module.
pub(super) struct Own {
    pub request: Request,
    /// Held by the CPU while it handles something, and by who changes what the service reaches: in the order in which they ask.
    pub turn: Mutex<()>,
    /// Its VM does not run: nothing is handled.
    pub is_held: AtomicBool,
}

impl Own {
    /// Makes that of a service that is held, or not.
    pub fn new(is_held: bool) -> Self {
        Self { request: Request::new(), turn: Mutex::new(()), is_held: AtomicBool::new(is_held) }
    }
}
