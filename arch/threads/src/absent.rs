// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is posted to vCPUs that may be in no CPU.

use turnstile_vm::attention::{Posted, Reasons};

use crate::{Queues, with};

/// Does what a post to a vCPU's attention word demands. A kick is spared where the vCPU is resident on the
/// calling CPU, which looks before it enters a guest anyway.
#[inline] // On the path of every cross-CPU interrupt.
pub fn notify<A: Queues>(vcpu: &A::Vcpu, posted: Posted) {
    match posted {
        Posted::Kick(token) if token != A::kick_token(A::this()) => A::kick(token),
        Posted::Kick(_) | Posted::Seen => {}
        Posted::Wake => wake::<A>(vcpu),
    }
}

/// Hands a vCPU that was taken out of where it was parked to its run queue.
#[cold]
pub fn wake<A: Queues>(vcpu: &A::Vcpu) {
    let (Some(thread), Some(system)) = (A::thread(vcpu), A::system().get()) else { return };
    let Some(index) = system.shared.wake(thread.as_ref().number) else { return };
    let Some(home) = system.cpus.get(index as usize) else { return };
    if !core::ptr::eq(*home, A::this()) {
        return A::reschedule(A::kick_token(home));
    }
    // This CPU looks before it enters the guest of whoever is resident.
    if let Some(resident) = with::<A, _>(|local, _| local.resident).flatten() {
        A::attention(resident).raise(Reasons::RESCHEDULE);
    }
}

/// Runs `f` while a vCPU is claimed, which is in no CPU; `None` if it is in one, or in use. The vCPU looks at its
/// interrupts afterwards. `f` waits for nothing: who loads the vCPU waits for it.
pub fn with_absent<A: Queues, T>(target: &'static A::Vcpu, f: impl FnOnce() -> T) -> Option<T> {
    A::thread(target)?;
    let attention = A::attention(target);
    let claim = attention.claim()?;
    let result = f();
    attention.raise(Reasons::INBOX);
    notify::<A>(target, attention.release(claim));
    Some(result)
}
