"""IMDb: classification of film reviews as positive or negative."""

from bert_jax.data import texts
from bert_jax.data.tables import BY_NAME, Row
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.tasks.text import Text

_NO_FILMS = "dev: reviews held out from data that do not name their films"


class Imdb(Text):
    """IMDb's reviews (Maas et al. 2011), or texts laid out like them.

    From `config.task` the task reads `data_dir` (a folder with train/CLASS/*.txt and
    optionally test/CLASS/*.txt, or "tfds:imdb_reviews", or "hf:stanfordnlp/imdb") and
    `dev_fraction`.

    IMDb has no dev set, so `dev` holds out `dev_fraction` of each class of the training
    data: whole films if the archive's urls_CLASS.txt name them. Otherwise, as on TFDS
    and the Hub, `train` and `dev` never share a text, but may share a film, so dev
    scores may be too high.
    """

    def read_rows(self, split: str) -> list[Row] | None:
        """Splits the training data into `train` and `dev`, and reads `test` as is."""
        options = self.options
        source, folder = options.data_dir, storage.storage_path(options.data_dir)
        if not source:
            raise UserError(
                "config.task.data_dir is empty: name IMDb's folder, with train/ and "
                "test/, hf:stanfordnlp/imdb or tfds:imdb_reviews"
            )
        by_name = source.startswith(BY_NAME)
        part = "train" if split == "dev" else split
        if by_name:
            whole = texts.read_texts(f"{source}:{part}")
        elif part == "train" or (folder / part).exists():
            whole = texts.read_folders(folder / part)
        else:
            return None
        if part != "train":
            return whole
        # A group of reviews must not be split between train and dev.
        films = None if by_name else texts.film_urls(folder / "train", whole)
        groups = films or [row["text"] for row in whole]
        kept, held = texts.hold_out(whole, options.dev_fraction, groups)
        if films is None and held:
            self.text.notices[_NO_FILMS] = len(held)
        return (held if split == "dev" else kept) or None
