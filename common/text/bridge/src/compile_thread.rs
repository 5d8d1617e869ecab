//! Threads that compile grammars: with deep stacks, and out of the way.

use crate::failure::{Code, Failure, Result};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The compiler recurses as deep as rules and references lead: some 10 KB of
/// stack for each, which takes at least 8 bytes of text. Untouched, it is no
/// memory.
const STACK_PER_BYTE: usize = 2 << 10;
const MIN_STACK: usize = 64 << 20;

/// The part of the stack that a trial has: what passes the trial has room to spare
/// when it is repeated.
const TRIAL_STACK: usize = 2;

/// The stack of a thread that works on a text of `size` bytes.
fn stack_for(size: usize, is_trial: bool) -> usize {
    let whole = MIN_STACK.max(size.saturating_mul(STACK_PER_BYTE));
    if is_trial {
        whole / TRIAL_STACK
    } else {
        whole
    }
}

/// Schemas that people write compile in a few milliseconds. What takes longer
/// goes on in the time that no other thread wants.
const PATIENCE: Duration = Duration::from_millis(20);

/// Says on its drop, also of a panic, that the thread is about to end.
struct Ending {
    ended: Arc<Mutex<bool>>,
    _done: Sender<()>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Ok(mut ended) = self.ended.lock() {
            *ended = true;
        }
    }
}

/// Runs `work` on a text of `size` bytes: on a thread with a stack for it, after
/// PATIENCE only in idle time of the machine.
pub fn deeply<T: Send>(
    size: usize,
    is_trial: bool,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let ended = Arc::new(Mutex::new(false));
    let (say_id, id) = channel();
    let (_done, done) = channel::<()>();
    let ending = Ending { ended: ended.clone(), _done };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("grammar-compile".to_string())
            .stack_size(stack_for(size, is_trial))
            .spawn_scoped(scope, move || {
                let _ending = ending;
                let _ = say_id.send(unsafe { libc::gettid() });
                crate::memory::or_unwind(work)
            })
            .map_err(|e| Failure {
                code: Code::ResourceExhausted,
                message: format!("no thread to compile a grammar: {e}"),
            })?;
        if done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            yield_to_others(&id.recv().ok(), &ended);
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets the thread `id` run in idle time alone. Under the lock, without which
/// the thread cannot end: `id` is still the thread's. A refusal changes nothing.
fn yield_to_others(id: &Option<libc::pid_t>, ended: &Mutex<bool>) {
    if let (Some(id), Ok(ended)) = (id, ended.lock()) {
        if !*ended {
            let idle: libc::sched_param = unsafe { std::mem::zeroed() };
            unsafe { libc::sched_setscheduler(*id, libc::SCHED_IDLE, &idle) };
        }
    }
}
