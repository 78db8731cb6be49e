# One image for every service of docker-compose.yml; the command says which one runs.
FROM python:3.11-slim

# `--build-arg EXTRAS=[embeddings]` adds sentence-transformers and torch (1.4 GB), for other models than the default one
ARG EXTRAS=""

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY events events
COPY projections projections
COPY services services
COPY migrations migrations
RUN pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS}" \
 && useradd --system --no-create-home refold \
 && install --directory --owner refold /data

USER refold
ENV REFOLD_DATA=/data PYTHONUNBUFFERED=1
ENTRYPOINT ["refold"]
CMD ["--help"]
