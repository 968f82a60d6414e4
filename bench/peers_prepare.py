"""One pass of a peer over a file, timed inside its own process: imports are not counted. Prints one line of JSON.

python bench/peers_prepare.py datatrove INPUT.jsonl TOKENIZER.json OUT_DIR
python bench/peers_prepare.py fastokens INPUT.jsonl TOKENIZER.json NUM_DOCUMENTS_PER_BATCH
"""

import json
import sys
import time
from pathlib import Path


def datatrove(text: Path, tokenizer: Path, out_dir: Path) -> dict[str, float]:
    """JsonlReader → DocumentTokenizer, one task in this process. The time is that of the executor's `run`.

    Its shuffle of documents is off, which is to its advantage, and nothing is deduplicated.
    """
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    pipeline = [
        JsonlReader(str(text.parent.resolve()), glob_pattern=text.name),
        DocumentTokenizer(
            str(out_dir.resolve()),
            tokenizer_name_or_path=str(tokenizer),
            eos_token="<|endoftext|>",
            shuffle_documents=False,
        ),
    ]
    executor = LocalPipelineExecutor(pipeline, tasks=1, workers=1, logging_dir=str((out_dir / "logs").resolve()))
    start = time.perf_counter()
    executor.run()
    seconds = time.perf_counter() - start
    num_tokens = sum(file.stat().st_size for file in out_dir.glob("*.ds")) // 2
    return {"seconds": seconds, "num_tokens": num_tokens}


def fastokens(text: Path, tokenizer: Path, num_documents: int) -> dict[str, float]:
    """`encode_batch_flat` over strings that are in memory, the first and only pass: loading is not counted.

    The tokens are counted with one end of text for each document that is not empty.
    """
    from fastokens import Tokenizer

    with open(text, encoding="utf-8") as lines:
        documents = [json.loads(line)["text"] for line in lines]
    encode = Tokenizer.from_json_str(tokenizer.read_text("utf-8")).encode_batch_flat
    batches = [documents[at : at + num_documents] for at in range(0, len(documents), num_documents)]
    num_id_bytes = 0
    start = time.perf_counter()
    for batch in batches:
        ids, _ = encode(batch, add_special_tokens=False, split_special_tokens=True)
        num_id_bytes += len(ids)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "num_tokens": num_id_bytes // 4 + sum(map(bool, documents))}


if __name__ == "__main__":
    peer, text_path, tokenizer_path, last = sys.argv[1:]
    if peer == "datatrove":
        result = datatrove(Path(text_path), Path(tokenizer_path), Path(last))
    else:
        result = fastokens(Path(text_path), Path(tokenizer_path), int(last))
    print(json.dumps(result))
