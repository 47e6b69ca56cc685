"""Whether to log, save or evaluate after a step."""

import dataclasses

from ml_collections import ConfigDict


@dataclasses.dataclass(frozen=True)
class Due:
    """Each method takes the number of finished steps.

    Attributes:
      evaluate_every: steps; 0: only at the end, and where epochs end.
      epoch_size: training rows; 0: does not evaluate at the end of epochs.
    """

    num_steps: int
    log_every: int
    save_every: int
    evaluate_every: int
    batch_size: int
    epoch_size: int

    @classmethod
    def of(cls, config: ConfigDict, epoch_size: int) -> "Due":
        """From the config, for data with `epoch_size` rows."""
        train = config.train
        return cls(
            num_steps=train.num_steps,
            log_every=train.log_every,
            save_every=config.checkpoint.save_every,
            evaluate_every=train.eval_every,
            batch_size=train.batch_size,
            epoch_size=epoch_size if train.eval_every_epoch else 0,
        )

    def log(self, step: int) -> bool:
        return step == self.num_steps or step % self.log_every == 0

    def save(self, step: int) -> bool:
        return step == self.num_steps or step % self.save_every == 0

    def evaluation(self, step: int) -> bool:
        if step == self.num_steps:
            return True
        if self.evaluate_every and step and step % self.evaluate_every == 0:
            return True
        if not (self.epoch_size and step):
            return False
        rows, before = step * self.batch_size, (step - 1) * self.batch_size
        return rows // self.epoch_size > before // self.epoch_size

    def any_event(self, step: int) -> bool:
        return self.log(step) or self.save(step) or self.evaluation(step)
