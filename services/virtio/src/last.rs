// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last message of an event: it goes with the answer, which costs no call. Most events have one.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_pci::msix::Message;
use turnstile_service_rt::{Answer, message, message_word, split_message};

/// Member and data of no message.
const NONE: u64 = u64::MAX;

/// Where it goes; and its data with the member ([`message_word`]). One thread has them, so loads and stores are enough.
static ADDRESS: AtomicU64 = AtomicU64::new(0);
static WORD: AtomicU64 = AtomicU64::new(NONE);

/// A member's function sends a message. The one before goes now.
#[inline(always)] // Of each interrupt.
pub fn post(member: u64, Message { address, data }: Message) {
    if WORD.load(Ordering::Relaxed) != NONE {
        flush();
    }
    ADDRESS.store(address, Ordering::Relaxed);
    WORD.store(message_word(member, data), Ordering::Relaxed);
}

/// Sends it now, if there is one.
#[cold]
#[inline(never)] // Most events have one message.
pub fn flush() {
    if let Some((member, Message { address, data })) = take() {
        // What a driver has written where nothing is reaches nobody, as on a bus.
        let _ = message(member, address, data);
    }
}

/// The answer, with the last message.
#[inline(always)] // Once in each program.
pub fn answered(answer: Answer) -> Answer {
    match take() {
        Some((member, Message { address, data })) => answer.with_message(member, address, data),
        None => answer,
    }
}

#[inline(always)] // A few loads and stores.
fn take() -> Option<(u64, Message)> {
    let word = WORD.load(Ordering::Relaxed);
    let (member, data) = split_message(word);
    let message = Message { address: ADDRESS.load(Ordering::Relaxed), data: data as u32 };
    WORD.store(NONE, Ordering::Relaxed);
    (word != NONE).then_some((member, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all programs of a process have the same place.
    #[test]
    fn the_last_message_goes_with_the_answer_once() {
        let answer = Answer { value: 7, lines: 1 << 62, ..Answer::default() };
        assert_eq!(answered(answer), answer);
        post(3, Message { address: 0x1000, data: 5 });
        post(6, Message { address: 0xfee0_0000, data: u32::MAX });
        assert_eq!(answered(answer), answer.with_message(6, 0xfee0_0000, u32::MAX));
        assert_eq!(answered(answer), answer);
        post(0, Message { address: 0, data: 0 });
        flush();
        assert_eq!(answered(answer), answer, "it has gone");
    }
}
