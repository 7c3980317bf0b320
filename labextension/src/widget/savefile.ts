/** Save as a file what comes in pieces. */

/** Asks for pieces until there is null, then has the browser save them under that name. */
export async function saveInPieces(
  next: () => Promise<BlobPart | null>,
  name: string,
  type: string
): Promise<void> {
  const pieces: BlobPart[] = [];
  for (let piece = await next(); piece !== null; piece = await next()) {
    pieces.push(piece);
  }
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(pieces, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
