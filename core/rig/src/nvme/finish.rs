// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How commands are finished (section 4.6).

use turnstile_virtio::memory::Memory;

use super::controller::Nvme;
use super::queues::Command;
use crate::ram::Ram;
use crate::slot::Dma;

impl Nvme {
    /// Says that a command is finished.
    pub(super) fn complete(&self, ram: &Ram, command: &Command, status: u16) {
        let mut queues = self.queues.borrow_mut();
        let Some(submission) = queues.submissions.get(&command.queue) else { return };
        let (head, number) = (submission.head, submission.completions);
        let tag = self.wrong_tag.take().unwrap_or((command.words[0] >> 16) as u16);
        let queue = self.wrong_queue.take().unwrap_or(command.queue);
        let third = u32::from(queue) << 16 | u32::from(head);
        let fourth = u32::from(status) << 17 | u32::from(tag);
        if let Some(completions) = queues.completions.get_mut(&number) {
            completions.owed.push([0, 0, third, fourth]);
        }
        drop(queues);
        self.settle(ram);
    }

    /// Writes completions for which there is room, and interrupts.
    pub(super) fn settle(&self, ram: &Ram) {
        let mut queues = self.queues.borrow_mut();
        let (mut messages, mut line) = (0, self.has_kept.get());
        for queue in queues.completions.values_mut() {
            while !queue.owed.is_empty() && queue.behind(queue.tail) != queue.head {
                let mut words = queue.owed.remove(0);
                words[3] |= u32::from(queue.phase ^ self.wrong_phase.take()) << 16;
                let bytes = words.map(u32::to_le_bytes).concat();
                self.face.blame(Dma(ram).write(queue.at + 16 * u64::from(queue.tail), &bytes).is_err());
                queue.tail = queue.behind(queue.tail);
                queue.phase ^= queue.tail == 0;
                messages += u32::from(queue.interrupts);
            }
            line |= queue.interrupts && queue.head != queue.tail;
        }
        let rises = !std::mem::replace(&mut queues.line, line) && line;
        let count = if self.shape.msix { messages } else { rises.into() };
        if !self.mute.get() {
            self.face.interrupts.update(|all| all + count);
        }
    }
}
