use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Sleep, sleep};

use super::ledger::{Ending, Progress};
use super::reply::Step;

/// Time for what was written to leave before the connection is broken.
const FLUSH: Duration = Duration::from_millis(20);

/// An answer on its way out. What the reader has been told is taken down when the connection takes
/// the bytes, and not before.
#[derive(Debug)]
pub(super) struct AnswerBody {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
    progress: Progress,
}

impl AnswerBody {
    pub(super) fn new(steps: Vec<Step>, progress: Progress) -> Self {
        let mut all = VecDeque::with_capacity(steps.len() + 1);
        for step in steps {
            if matches!(step, Step::Break) {
                all.push_back(Step::Pause(FLUSH));
            }
            all.push_back(step);
        }
        Self {
            steps: all,
            pause: None,
            progress,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            match self.steps.front() {
                None => return Poll::Ready(None),
                Some(Step::Stall) => return Poll::Pending,
                Some(_) => {}
            }
            match self.steps.pop_front() {
                Some(Step::Send(bytes, told)) => {
                    if let Some(tokens) = told {
                        self.progress.told(tokens);
                    }
                    self.end_early();
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Pause(pause)) => self.pause = Some(Box::pin(sleep(pause))),
                Some(Step::Break) => {
                    self.progress.end(Ending::Cut);
                    let error = io::Error::other("the script breaks the connection");
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Step::End(ending)) => self.progress.end(ending),
                Some(Step::Stall) | None => {}
            }
        }
    }
}

impl AnswerBody {
    /// A body of known length is not asked again after its last byte.
    fn end_early(&mut self) {
        if let [Step::End(ending)] = self.steps.make_contiguous() {
            self.progress.end(*ending);
        }
    }
}
