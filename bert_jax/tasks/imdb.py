"""IMDb: classification of film reviews as positive or negative."""

from collections.abc import Sequence

from bert_jax.data import texts
from bert_jax.data.tables import BY_NAME, Row
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.tasks.text import Text

_NO_FILMS = "train: reviews of data that do not name their films, which dev may share"


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

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        return [str(row.get("group", row["text"])) for row in rows]

    def read_rows(self, split: str) -> list[Row] | None:
        """Reads `train`, with each review's film as its `group`, or `test`."""
        options = self.options
        source, folder = options.data_dir, storage.storage_path(options.data_dir)
        if not source:
            raise UserError(
                "config.task.data_dir is empty: name IMDb's folder, with train/ and "
                "test/, hf:stanfordnlp/imdb or tfds:imdb_reviews"
            )
        if split == "dev":
            return None
        by_name = source.startswith(BY_NAME)
        if by_name:
            rows = texts.read_texts(f"{source}:{split}")
        elif split == "train" or (folder / split).exists():
            rows = texts.read_folders(folder / split)
        else:
            return None
        if split != "train" or not options.dev_fraction:
            return rows
        # A film's reviews must not be split between train and dev.
        films = None if by_name else texts.film_urls(folder / "train", rows)
        if films is None:
            self.text.notices[_NO_FILMS] = len(rows)
            return rows
        return [{**row, "group": film} for row, film in zip(rows, films, strict=True)]
